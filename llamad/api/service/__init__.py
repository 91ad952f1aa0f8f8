"""What all endpoints share: the service, keys, metrics, error formats."""
