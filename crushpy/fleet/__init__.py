"""Task lists on several machines: a queue in PostgreSQL, workers, and code as git bundles."""
