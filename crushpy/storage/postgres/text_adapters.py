"""Text as the server takes it: it knows no NUL, which comes back exactly all the same."""

from typing import Any

import psycopg
from psycopg.adapt import Buffer, Loader
from psycopg.types.string import StrDumper

MARK = "\U0010fff0"
"""Stands before a letter that says what was there. Nobody's text has it; where one does, it is marked too."""


def to_server(text: str) -> str:
    if "\0" in text or MARK in text:
        return text.replace(MARK, f"{MARK}m").replace("\0", f"{MARK}0")
    return text


def from_server(text: str) -> str:
    if MARK in text:
        return text.replace(f"{MARK}0", "\0").replace(f"{MARK}m", MARK)
    return text


class TextDumper(StrDumper):
    def dump(self, obj: str) -> Buffer | None:
        return super().dump(to_server(obj))


class TextLoader(Loader):
    def load(self, data: Buffer) -> str:
        return from_server(bytes(data).decode())


class SumLoader(Loader):
    """A sum of whole numbers is a `numeric`: a whole number again."""

    def load(self, data: Buffer) -> int | float:
        text = bytes(data).decode()
        return float(text) if "." in text or "N" in text else int(text)


def adapt(connection: psycopg.Connection[Any]) -> None:
    connection.adapters.register_dumper(str, TextDumper)
    connection.adapters.register_loader("text", TextLoader)
    connection.adapters.register_loader("numeric", SumLoader)
