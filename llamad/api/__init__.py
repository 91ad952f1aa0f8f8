"""The endpoints: JSON to typed parameters, parameters to engine commands, engine events to JSON."""
