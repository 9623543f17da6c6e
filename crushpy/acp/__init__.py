"""The Agent Client Protocol, version 1: crushpy in an editor. Only JSON goes to stdout."""
