"""What all endpoints share: the service, keys, metrics, the shapes of errors."""
