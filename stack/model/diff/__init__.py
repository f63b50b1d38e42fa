"""The text of changes: a diff read strictly, lines compared, hunks placed, three sides merged."""
