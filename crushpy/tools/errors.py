"""Errors that tools report to the model."""


class ToolError(Exception):
    """A tool could not do what was asked, for a reason the model can act on. Becomes an error result."""


class DoesNotFit(ToolError):
    """An edit does not apply to a file whose current content the model has read: no question is needed."""
