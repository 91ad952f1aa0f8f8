"""The interface between the event loop and an engine: rings, their messages, blobs, and shared types."""
