"""Gateways in front of llamads, for tests."""
