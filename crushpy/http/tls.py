"""The TLS context: made when the first https request is, because reading the certificates takes a while."""

import os
import ssl
from collections.abc import Mapping
from pathlib import Path

from crushpy.http.common import ConnectFailed

BUNDLE_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def make_context(environ: Mapping[str, str] | None = None) -> ssl.SSLContext:
    """Trusts the bundle that the environment names, else the system's, else certifi's."""
    env = os.environ if environ is None else environ
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["http/1.1"])
    for name in BUNDLE_VARIABLES:
        if value := env.get(name):
            _load(context, name, Path(value))
            return context
    context.load_default_certs()
    if not context.cert_store_stats()["x509_ca"] and not _has_folder():
        import certifi

        context.load_verify_locations(cafile=certifi.where())
    return context


def _load(context: ssl.SSLContext, name: str, path: Path) -> None:
    try:
        if path.is_dir():
            context.load_verify_locations(capath=path)
        else:
            context.load_verify_locations(cafile=path)
    except (OSError, ssl.SSLError) as error:
        raise ConnectFailed(
            f"{name}={path} cannot be read as certificates: {error}",
            f"Point {name} at a PEM file, or unset it to use the system's certificates.",
        ) from None


def _has_folder() -> bool:
    """Whether the system keeps its certificates in a folder: OpenSSL looks there only when it needs one."""
    folder = ssl.get_default_verify_paths().capath
    return bool(folder) and any(Path(folder).glob("*.0"))
