"""Diffs as people leave them: decoded, read with every anomaly a flag, placed in a text."""
