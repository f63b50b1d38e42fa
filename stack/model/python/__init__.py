"""What Python text says without being run: whether it parses, what it imports and defines."""
