"""What can go wrong between us and a server, before it is a matter of status codes."""

from crushpy.core.errors import CrushpyError


class HttpError(CrushpyError):
    """Base: there is no complete answer."""


class ConnectFailed(HttpError):
    """The server could not be reached, or hung up without a single byte of an answer."""


class BadAddress(ConnectFailed):
    """There is no such address: asking again would change nothing."""


class HttpTimeout(HttpError):
    """Nothing came for too long: while connecting, before the answer, or in the middle of it."""


class ProtocolBroken(HttpError):
    """The answer broke off in the middle, or is no HTTP."""
