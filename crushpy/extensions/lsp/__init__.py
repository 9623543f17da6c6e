"""Language servers: a client of our own, and the diagnostics that results gain after edits."""
