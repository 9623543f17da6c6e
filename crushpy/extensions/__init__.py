"""What users add to crushpy: servers of the Model Context Protocol. Loaded only if configured."""
