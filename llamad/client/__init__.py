"""The event loop's side of an engine: submit, abort, events, sessions and state files."""
