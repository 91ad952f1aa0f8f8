"""`llamad launch`: runs a coding agent with the models of a daemon on this machine."""
