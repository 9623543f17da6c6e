"""Extension files: Markdown with a head of `name: value` lines, written for any agent, read leniently."""

import json
import os
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from crushpy.core.messages import Data, Json
from crushpy.security.safe_open import open_regular
from crushpy.security.sanitize import clean

MAX_EXTENSION_BYTES = 500_000
MAX_HEAD_CHARS = 20_000
_HEAD = re.compile(r"---[ \t]*\r?\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_OPEN_HEAD = re.compile(r"---[ \t]*\r?\n(.*?)(?:\n\r?\n|\Z)", re.DOTALL)
"""Frontmatter whose closing line is missing: it ends at the first empty line."""
_PLAIN = re.compile(r"([A-Za-z_][\w-]*): +([A-Za-z/<(](?:[^:#]|:(?!\s|$)|(?<!\s)#)*)")
"""A field whose value means the same in YAML."""
_HINT = re.compile(r"^argument-hint:[ \t]*(\[.*\])[ \t]*$", re.MULTILINE)
"""A hint such as `[file] [line]` is text, although YAML would read a list."""
_WORD = re.compile(r"[^\s,()]+(?:\([^()]*\))?")
"""A name, with an argument in brackets: `Bash(git add:*)`."""
_FIELD = re.compile(r"^([A-Za-z_][\w-]*):[ \t]*(.*)$")


class Unreadable(Exception):
    """An extension file that is refused; the text says why."""


def read_extension(file: Path, inside: Path) -> str:
    """The text of an extension file. Raises Unreadable; a link may not lead out of `inside`."""
    real = Path(os.path.realpath(file))
    if not real.is_relative_to(os.path.realpath(inside)):
        raise Unreadable("it is a link that leads out of its folder")
    try:
        with os.fdopen(open_regular(real), "rb") as opened:
            data = opened.read(MAX_EXTENSION_BYTES + 1)
    except OSError as error:
        raise Unreadable(f"it cannot be read: {error.strerror or error}") from None
    if len(data) > MAX_EXTENSION_BYTES:
        raise Unreadable(f"it has more than {MAX_EXTENSION_BYTES:,} bytes")
    if b"\0" in data:
        raise Unreadable("it is not a text file")
    return data.decode("utf-8-sig", "replace")


class Document(Data, frozen=True):
    """An extension file: the fields of its head, and the text below."""

    fields: Json
    body: str
    warnings: tuple[str, ...] = ()

    def text(self, name: str) -> str:
        """A field as sanitised text; empty if it is not there."""
        value = self.fields.get(name)
        if value is None or isinstance(value, dict | list):
            return ""
        return clean(str(value).lower() if isinstance(value, bool) else str(value)).strip()

    def flag(self, name: str) -> bool:
        return self.text(name).lower() in ("true", "yes", "on", "1")

    def words(self, name: str) -> tuple[str, ...]:
        """A field that is a list, or a text with commas or spaces between the words."""
        value = self.fields.get(name)
        if isinstance(value, list):
            return tuple(clean(str(item)).strip() for item in cast("list[Any]", value))
        return tuple(word.strip("\"'") for word in _WORD.findall(self.text(name).strip("[]")))


@lru_cache(maxsize=256)
def parse_document(text: str) -> Document:
    """Splits a file into its head and its text. Raises Unreadable for a head that is hostile."""
    text = text.lstrip()
    found = _HEAD.match(text)
    if found is None:
        if (begun := _OPEN_HEAD.match(text)) and (fields := _read_lines(begun[1][:MAX_HEAD_CHARS])):
            body = clean(text[begun.end() :] or text)
            return Document(fields, body, ("its frontmatter has no end",))
        return Document({}, clean(text))
    head, body = found[1], clean(text[found.end() :])
    if len(head) > MAX_HEAD_CHARS:
        raise Unreadable(f"its frontmatter has more than {MAX_HEAD_CHARS:,} characters")
    lines = [_PLAIN.fullmatch(line) for line in head.splitlines() if line.strip()]
    if all(lines):  # nearly all: several times faster than YAML
        return Document({line[1]: line[2] for line in lines if line}, body)
    import yaml

    head = _HINT.sub(lambda line: f"argument-hint: {json.dumps(line[1])}", head)
    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times faster, if it was built
        tokens = cast("Iterable[object]", yaml.scan(head, loader))  # pyright: ignore[reportUnknownMemberType]
        if any(isinstance(token, yaml.AliasToken | yaml.TagToken) for token in tokens):
            raise Unreadable("its frontmatter uses YAML aliases or tags")
        fields = yaml.load(head, loader)  # noqa: S506  # a safe one
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        fields = _read_lines(head)
        why = getattr(error, "problem", "") or type(error).__name__
        return Document(
            fields, body, (f"its frontmatter is not valid YAML ({why}); it was read line by line",)
        )
    if not isinstance(fields, dict):
        return Document({}, body)
    return Document({str(name): value for name, value in cast("Json", fields).items()}, body)


def _read_lines(head: str) -> Json:
    """The fields of a head that is not valid YAML: each begins a line, and its value may go on indented."""
    fields: dict[str, str] = {}
    name = ""
    for line in head.splitlines():
        if field := _FIELD.match(line):
            name = field[1]
            fields[name] = "" if field[2] in (">", "|", ">-", "|-") else field[2].strip()
        elif name and line.strip():
            fields[name] = f"{fields[name]} {line.strip()}".strip()
    return {name: value.strip("\"'") for name, value in fields.items()}
