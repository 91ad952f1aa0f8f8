"""Gateways in front of several llamads: the programs, their clients, and the measurements."""
