"""Where the bytes of an image or a sound come from: the request itself, a folder of the operator's, the web."""
