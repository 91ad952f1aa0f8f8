"""Gateways in front of several llamads: the programs, their clients and what is measured of both."""
