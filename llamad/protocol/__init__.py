"""What crosses between the front and an engine: rings, their messages, blobs, and the types both sides know."""
