"""A request that generates: from parameters to tasks, from events to the answer."""
