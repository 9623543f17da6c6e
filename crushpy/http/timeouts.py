"""How long to wait for a server."""

import msgspec


class Timeouts(msgspec.Struct, frozen=True):
    """Seconds of silence after which we give up."""

    connect: float = 10.0
    """Name look-up, connection, proxy and TLS together."""
    response: float = 300.0
    """From the request to the first line of the answer: a model may think that long."""
    idle: float = 120.0
    """Between two pieces of the answer."""
