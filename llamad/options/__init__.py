"""The options of a generation: a table of their names, types, ranges, defaults and flags."""
