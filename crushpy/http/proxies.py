"""Selects the proxy for a request from the usual environment variables."""

import ipaddress
import os
from collections.abc import Mapping

from crushpy.http.common import ConnectFailed, Target, parse_url
from crushpy.http.public_addresses import read_address


def proxy_for(target: Target, environ: Mapping[str, str] | None = None) -> Target | None:
    """The proxy for `target` (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY); None if there is none.

    Requests to loopback never use a proxy: it would connect to its own loopback.
    """
    env = os.environ if environ is None else environ
    name, url = _proxy_variable(env, target.scheme)
    if not url or is_loopback(target.host) or _excluded(target, _get(env, "no_proxy")):
        return None
    if "://" not in url:
        url = f"http://{url}"
    if not url.lower().startswith(("http://", "https://")):
        scheme = url.split("://")[0]
        raise ConnectFailed(
            f"{name} names a {scheme} proxy, which is not supported",
            f"Set {name} to an http:// proxy, or add {target.host} to NO_PROXY.",
        )
    return parse_url(url)


def is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    address = read_address(host)
    return address is not None and address.is_loopback


def _proxy_variable(env: Mapping[str, str], scheme: str) -> tuple[str, str]:
    for name in (f"{scheme}_proxy", "all_proxy"):
        # A CGI server passes a request's "Proxy:" header as HTTP_PROXY: only lower case is safe there.
        if name == "http_proxy" and "REQUEST_METHOD" in env and name not in env:
            continue
        if value := _get(env, name):
            return name.upper(), value
    return "", ""


def _get(env: Mapping[str, str], name: str) -> str:
    return (env.get(name) or env.get(name.upper()) or "").strip()


def _excluded(target: Target, no_proxy: str) -> bool:
    rules = (rule.strip().lower() for rule in no_proxy.split(","))
    return any(rule == "*" or _matches(target, rule) for rule in rules if rule)


def _matches(target: Target, rule: str) -> bool:
    address = read_address(target.host)
    if "/" in rule:
        try:
            return address is not None and address in ipaddress.ip_network(rule, strict=False)
        except ValueError:
            return False
    name, _, port = rule.rpartition(":")
    if name and port.isdigit() and (":" not in name or name.startswith("[")):
        if int(port) != target.port:
            return False
        rule = name
    rule = rule.strip("[]")
    if address is not None:
        return read_address(rule) == address
    name = rule.removeprefix("*").lstrip(".")
    host = target.host.lower()
    return host == name or host.endswith(f".{name}")
