"""The table of flags, one file for each group of the help."""
