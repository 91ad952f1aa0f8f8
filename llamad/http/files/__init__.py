"""Static files: a folder's files as responses, with tags, compression and ranges. Knows no endpoint."""
