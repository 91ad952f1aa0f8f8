"""llamad: a low-latency daemon that serves llama.cpp models over HTTP."""

__version__ = "0.1.0"
