"""The table of flags, one file per group of the help."""
