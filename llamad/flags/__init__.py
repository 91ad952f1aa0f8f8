"""Flags: one table of everything the command line accepts, and the typed settings parsed from it."""
