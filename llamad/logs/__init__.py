"""The program's own log: its lines, where they go, and its set-up from the flags."""
