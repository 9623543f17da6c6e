"""How a tool says that it could not do what was asked."""


class ToolError(Exception):
    """A tool could not do what was asked, for a reason the model can act on. Becomes an error result."""


class DoesNotFit(ToolError):
    """A change does not fit a file that the model has read as it is now: there is nothing to ask the user."""
