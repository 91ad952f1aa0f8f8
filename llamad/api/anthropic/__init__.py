"""Endpoints as Anthropic's clients know them."""
