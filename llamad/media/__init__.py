"""Images and sound: from files that strangers send to rows of embeddings that an engine reads."""
