"""The same trials on other hosts."""
