"""Static files: serves the files of a folder, with ETags, compression and ranges. Knows no endpoint."""
