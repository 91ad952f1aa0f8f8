"""What only a GPU machine needs: building from carried sources, and models of a real one's shape."""
