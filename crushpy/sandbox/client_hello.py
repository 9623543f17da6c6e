"""Parses the ClientHello of a TLS connection for its server name. Pure."""

MAX_HELLO_BYTES = 1 << 16
_RECORD_HEADER_BYTES, _HANDSHAKE, _CLIENT_HELLO = 5, 22, 1
_SERVER_NAME, _HOST_NAME = 0, 0

ALERT = b"\x15\x03\x01\x00\x02\x02\x70"
"""The TLS alert `unrecognized_name`."""


class NotTls(ValueError):
    """The data is not the beginning of a TLS connection."""


def read_server_name(data: bytes) -> str | None:
    """The server name in a ClientHello, in lower case; empty if there is none, None while it is incomplete.

    Raises NotTls.
    """
    message = _handshake(data)
    if message is None:
        return None
    try:
        return _server_name(_Reader(message))
    except (IndexError, UnicodeDecodeError):
        raise NotTls("its ClientHello is broken") from None


def _handshake(data: bytes) -> bytes | None:
    """The first handshake message, which may span several records."""
    message = b""
    while data:
        if data[0] != _HANDSHAKE or (len(data) > 1 and data[1] != 3):
            raise NotTls("it does not begin with a TLS record")
        if len(data) < _RECORD_HEADER_BYTES:
            return None
        size = int.from_bytes(data[3:_RECORD_HEADER_BYTES], "big")
        message += data[_RECORD_HEADER_BYTES : _RECORD_HEADER_BYTES + size]
        if message and message[0] != _CLIENT_HELLO:
            raise NotTls("it does not begin with a ClientHello")
        if len(message) >= 4 and len(message) >= 4 + (length := int.from_bytes(message[1:4], "big")):
            return message[4 : 4 + length]
        if len(data) < _RECORD_HEADER_BYTES + size:
            return None
        if not size:
            raise NotTls("it contains an empty record")
        data = data[_RECORD_HEADER_BYTES + size :]
    return None


class _Reader:
    """Consumes bytes from the front. Raises IndexError if there are too few."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def take(self, size: int) -> bytes:
        if size > len(self.data):
            raise IndexError(size)
        data, self.data = self.data[:size], self.data[size:]
        return data

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def block(self, size: int) -> "_Reader":
        """A block with a length prefix of `size` bytes."""
        return _Reader(self.take(self.number(size)))


def _server_name(hello: _Reader) -> str:
    hello.take(2 + 32)  # version, random
    hello.block(1)  # session
    hello.block(2)  # ciphers
    hello.block(1)  # compression
    if not hello.data:
        return ""
    names: list[str] = []
    extensions = hello.block(2)
    while extensions.data:
        kind, content = extensions.number(2), extensions.block(2)
        if kind != _SERVER_NAME:
            continue
        server_names = content.block(2)
        while server_names.data:
            name_type, name = server_names.number(1), server_names.block(2)
            if name_type == _HOST_NAME:
                names.append(name.data.decode("ascii").lower().rstrip("."))
    if len(names) > 1:
        raise NotTls("it names more than one server")
    return names[0] if names else ""
