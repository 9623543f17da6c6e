"""Reads the server name in the ClientHello of a TLS connection, as OpenSSL parses it."""

import ssl
import sys

MAX_HELLO_BYTES = 1 << 16
ALERT = b"\x15\x03\x01\x00\x02\x02\x70"
"""The TLS alert `unrecognized_name`."""


class NotTls(ValueError):
    """The data is not the beginning of a TLS connection."""


def read_server_name(data: bytes) -> str | None:
    """The server name in a ClientHello, in lower case; empty if there is none, None while it is incomplete.

    Raises NotTls.
    """
    names: list[str] = []

    def stop(_connection: object, name: str | None, _context: object) -> int:
        names.append((name or "").lower().rstrip("."))
        return ssl.AlertDescription.ALERT_DESCRIPTION_UNRECOGNIZED_NAME

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sni_callback = stop
    received = ssl.MemoryBIO()
    received.write(data)
    # Python would print that it cannot decode a name which is not ASCII: the handshake fails anyway.
    print_unraisable, sys.unraisablehook = sys.unraisablehook, _ignore
    try:
        context.wrap_bio(received, ssl.MemoryBIO(), server_side=True).do_handshake()
    except ssl.SSLWantReadError:
        return None
    except ssl.SSLError as error:
        if not names:
            raise NotTls(f"it does not begin with a valid ClientHello: {error.reason}") from None
    finally:
        sys.unraisablehook = print_unraisable
    return names[0]


def _ignore(_report: object) -> None:
    pass
