"""The endpoints that are llama-server's own."""
