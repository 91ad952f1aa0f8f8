"""Measures how much a hostile client slows down the others."""
