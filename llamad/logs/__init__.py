"""The program's own log: the format of its lines, their destinations, and its set-up from the flags."""
