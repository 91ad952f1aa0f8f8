"""`llamad rpc-server`: a worker for engines on other machines."""
