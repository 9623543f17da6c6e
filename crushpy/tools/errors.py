"""How a tool says that it could not do what was asked."""


class ToolError(Exception):
    """A tool could not do what was asked, for a reason the model can act on. Becomes an error result."""
