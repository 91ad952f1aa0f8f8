"""The options of a generation: one table of names, types, ranges, defaults and flags."""
