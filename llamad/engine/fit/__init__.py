"""Computes how much memory a model takes, and the values of flags with which it fits."""
