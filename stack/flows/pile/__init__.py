"""A pile read, ordered and replayed: which patches it holds, and what it does not say."""
