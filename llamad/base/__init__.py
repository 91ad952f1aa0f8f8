"""What every compiled module stands on: the llama.cpp table, the clock, atomics, threads."""
