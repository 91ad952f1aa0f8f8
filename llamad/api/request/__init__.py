"""From JSON to typed parameters: every 400 is born here."""
