"""File snapshots and restoration. Works with bytes and paths; independent of conversations."""
