"""Bytes to requests and answers to bytes. Runs on the event loop; knows no endpoint and no token."""
