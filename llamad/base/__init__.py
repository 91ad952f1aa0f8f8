"""What every compiled module uses: the llama.cpp table, the clock, atomics, threads."""
