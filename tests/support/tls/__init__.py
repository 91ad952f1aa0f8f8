"""TLS for tests: certificates."""
