"""The models this daemon serves: loading, ready, failed, draining."""
