"""Keeps an ordered series of patches alive on top of somebody else's repository."""

__version__ = "0.1.0"
