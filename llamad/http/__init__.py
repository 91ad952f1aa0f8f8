"""The HTTP server: turns bytes into requests and responses into bytes. Runs on the event loop; knows no endpoint."""
