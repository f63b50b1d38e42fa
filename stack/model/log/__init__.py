"""What a log says: its lines, how a run ended and why, speed, memory, time."""
