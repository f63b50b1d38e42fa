"""Trials and verdicts: statistics, schedules, screens, decisions."""
