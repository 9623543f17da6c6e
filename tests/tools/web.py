"""A small real web server on loopback whose every answer is the test's own, and what it was asked."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

Answer = bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]


def answer(body: bytes | str = b"", kind: str = "text/plain", status: int = 200, **headers: str) -> bytes:
    """One whole answer. Underscores in header names stand for dashes."""
    data = body.encode() if isinstance(body, str) else body
    head = {"content-length": str(len(data)), "connection": "close", **headers}
    if kind:
        head["content-type"] = kind
    lines = [
        f"HTTP/1.1 {status} Whatever",
        *(f"{name.replace('_', '-')}: {value}" for name, value in head.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + data


def redirect(location: str, status: int = 302) -> bytes:
    return answer(status=status, location=location)


class Web:
    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self.answers = dict(answers)
        self.asked: list[str] = []
        self.heads: list[str] = []
        self.port = 0
        self.scheme = "http"

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            path = head.split(" ")[1]
            self.asked.append(path)
            self.heads.append(head)
            given = self.answers.get(path, answer("nothing here", status=404))
            if callable(given):
                await given(writer)
            else:
                writer.write(given)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client went away, or the test is over
        finally:
            writer.close()


@asynccontextmanager
async def web(answers: Mapping[str, Answer], certificate: Path | None = None) -> AsyncIterator[Web]:
    """Serves `answers` by path until the block ends; over TLS where a certificate is given."""
    site = Web(answers)
    tls = None
    if certificate:
        site.scheme = "https"
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate)
    server = await asyncio.start_server(site.serve, "127.0.0.1", 0, ssl=tls)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()


def own_certificate(folder: Path) -> Path:
    """A certificate for 127.0.0.1 that vouches for itself, with its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loopback")])
    now = datetime.now(UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).add_extension(names, critical=False)
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    file = folder / "own.pem"
    file.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
        + builder.sign(key, hashes.SHA256()).public_bytes(pem)
    )
    return file
