# Owns: the Python names of the numbers in messages.pxd. Constant, any thread.
