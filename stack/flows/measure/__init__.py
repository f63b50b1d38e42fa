"""Trials asked for, found again or run, and compared; nothing here knows a whole verify."""
