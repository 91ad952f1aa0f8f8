"""OpenAI's dialect: chat completions, completions. One file for each endpoint, and the shapes they share."""
