"""A fake model behind the table, for tests. Not in the wheel."""
