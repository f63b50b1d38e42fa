"""A line and what verbs make of it: series, edits of its file, rebase, restack, split, review."""
