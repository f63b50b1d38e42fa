"""A line and its workspace: applied, edited, exported, taken back."""
