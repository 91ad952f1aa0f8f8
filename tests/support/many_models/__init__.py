"""Catalogues, and a simulated world for the scheduler of many models."""
