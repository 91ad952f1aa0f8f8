"""OpenAI's endpoints, one file per endpoint, and the objects that they share."""
