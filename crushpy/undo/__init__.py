"""What files were, kept so that they can be again. Knows bytes and paths, and no conversation."""
