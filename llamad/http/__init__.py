"""Bytes to requests and responses to bytes. Event loop; knows no endpoint and no token."""
