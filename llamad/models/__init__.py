"""The models that this daemon serves: their files, their engine processes, and their state."""
