"""Gets the bytes of an image or a sound: from the request itself, a folder that the operator opened, or the web."""
