"""Measurements in this process, without a server."""
