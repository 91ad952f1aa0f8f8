"""Tools for a GPU machine: builds from sources that were copied there, and makes models with a real model's shape."""
