"""A daemon whose event loop is watched, and requests that would hold it."""
