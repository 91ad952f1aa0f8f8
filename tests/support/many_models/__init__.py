"""Catalogues, a simulated world for the scheduler of many models, and daemons with many models."""
