"""RPC workers for tests, real ones and pretenders."""
