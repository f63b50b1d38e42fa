"""A line shown to others: reviewed, sent, published, on its way to upstream."""
