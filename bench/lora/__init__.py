"""LoRA adapters for measurements: random ones of a given rank, and one that is trained."""
