"""Simulates many llamads behind a gateway, to compare ways to distribute conversations. Nothing is measured here; the
speeds of a machine come from RESULTS.md."""
