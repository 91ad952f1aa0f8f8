"""Generation requests: parameters to tasks, events to responses."""
