"""A line carried to another commit: what it would meet, the steps, the answers to its conflicts."""
