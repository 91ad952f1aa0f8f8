"""Turns JSON into typed parameters, and raises the 400s about it."""
