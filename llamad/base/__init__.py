"""What every layer may use: the llama.cpp function table, clock, atomics, threads, fair queues, memory budgets."""
