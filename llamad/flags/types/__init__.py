"""What a flag is, and how its text becomes a value."""
