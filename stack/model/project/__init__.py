"""What `stack.toml` says, and the records of what was built from it."""
