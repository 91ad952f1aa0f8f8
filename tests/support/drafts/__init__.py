"""What drafts from text are compared with."""
