"""LoRA adapters for measurements: seeded ones of a given rank, and a real one that is trained."""
