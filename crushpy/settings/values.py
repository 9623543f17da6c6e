"""Validates values against the schema and parses them from text."""

import re
from contextlib import suppress
from typing import cast

import msgspec

from crushpy.core.errors import SettingsError
from crushpy.settings.setting_keys import KeyPath, Leaf, show, spell

_PASSWORD_OPTION = re.compile(r"[?&](?:ssl)?password=.")


def _has_nul(value: object) -> bool:
    texts = cast("list[object]", value) if isinstance(value, list) else [value]
    return any("\0" in str(text) for text in texts)


def check(leaf: Leaf, path: KeyPath, value: object, where: str = "") -> object:
    """`value` converted to the type of its key. Errors begin with `where`: a file, variable or flag."""
    try:
        if _has_nul(value):
            raise msgspec.ValidationError("a NUL character")
        return msgspec.convert(value, leaf.type)
    except msgspec.ValidationError:
        hide = leaf.secret and isinstance(value, str)
        shown = "(not shown: it could be a key)" if hide else show(value)
        prefix = f"{where}: " if where else ""
        raise SettingsError(f"{prefix}{spell(path)} = {shown}: must be {leaf.allowed}") from None


def refuse_password(path: KeyPath, value: object, where: str = "") -> None:
    """Raises if the value is a database URL with a password, which must not be in a file."""
    if path != ("database_url",) or not isinstance(value, str):
        return
    who = value.partition("://")[2].partition("/")[0].rpartition("@")[0]
    if not (who.partition(":")[2] or _PASSWORD_OPTION.search(value)):
        return
    prefix = f"{where}: " if where else ""
    raise SettingsError(
        f"{prefix}database_url contains a password, which must not be stored in a file",
        "Remove it from the URL and put it into ~/.pgpass, PGPASSWORD or CRUSHPY_DATABASE_URL.",
    )


def check_text(leaf: Leaf, path: KeyPath, text: str, where: str = "") -> object:
    """The validated value of `text` for this key; quotes are optional."""
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise SettingsError(f"{where or 'the value'}: {spell(path)}: must be valid UTF-8")
    return check(leaf, path, _meant(leaf, text.strip()), where)


def _meant(leaf: Leaf, text: str) -> object:
    if leaf.is_list:
        return _parsed(text) if text.startswith("[") else split_rules(text)
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return _parsed(text)
    if leaf.is_text:
        return text
    if text.startswith("{"):
        return _parsed(text)
    for number in (int, float):
        with suppress(ValueError):
            return number(text)
    return {"true": True, "false": False}.get(text.lower(), text)


def split_rules(text: str) -> list[str]:
    """The rules of a comma-separated list; a comma inside brackets belongs to its rule."""
    rules, depth = [""], 0
    for char in text:
        depth += (char == "(") - (char == ")" and depth > 0)
        if char == "," and not depth:
            rules.append("")
        else:
            rules[-1] += char
    return [rule.strip() for rule in rules if rule.strip()]


def _parsed(text: str) -> object:
    """A quoted text or list in JSON or TOML syntax, else `text` itself."""
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(text)
    import tomllib

    try:
        found = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return found["value"] if len(found) == 1 else text
