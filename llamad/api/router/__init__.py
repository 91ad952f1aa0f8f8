"""The endpoints of a server with several models, as llama-server's router has them."""
