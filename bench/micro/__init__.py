"""What is measured in this process, without a server."""
