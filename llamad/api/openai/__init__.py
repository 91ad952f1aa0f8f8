"""OpenAI's endpoints: one file per endpoint, and the objects they share."""
