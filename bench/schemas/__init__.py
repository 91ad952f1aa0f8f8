"""Compares grammar engines on real JSON schemas: `python -m bench grammar --beside llguidance,xgrammar`."""
