"""What a hostile client costs the others."""
