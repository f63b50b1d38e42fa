"""What was measured, told, decided upon, exchanged and explained."""
