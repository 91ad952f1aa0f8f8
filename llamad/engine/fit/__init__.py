"""What a model takes of the machine's memory, and the values of flags that make it fit."""
