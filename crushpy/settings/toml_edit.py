"""Edits one value in a TOML text and preserves comments, order and blank lines.

Pure: text in, text out. Each edit is parsed again and refused unless it means exactly what was asked for, so
that no unusual layout can lose a setting.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from crushpy.core.errors import SettingsError
from crushpy.settings.files import parse
from crushpy.settings.setting_keys import KeyPath, spell, toml_value

Table = dict[str, Any]


def set_key(text: str, path: KeyPath, value: object, file: Path) -> str:
    """`text` with `path` set to `value`, in place if it exists."""
    before = parse(text, file)
    if isinstance(value, tuple):
        value = list(cast("tuple[object, ...]", value))

    def change(table: Any) -> None:
        _put(table, path[-1], value)

    wanted = _changed(text, path, file, change)
    if len(path) == 1 and path[0] not in before:
        return _checked(_with_top_key(text, path[0], value), wanted, path, file)
    try:
        return _edit(text, path, file, change)
    except SettingsError:
        if _find(before, path[:-1]) is not None:
            raise
        # A new table beside tables written as dotted keys can always be appended.
        end = "\r\n" if "\r\n" in text else "\n"
        table = f"[{spell(path[:-1])}]{end}{spell(path[-1:])} = {toml_value(value)}{end}"
        return _checked(f"{text.rstrip()}{end * 2}{table}", wanted, path, file)


def unset_key(text: str, path: KeyPath, file: Path) -> str:
    """`text` without `path`, a value or a table; unchanged if it does not exist."""
    if _find(parse(text, file), path) is None:
        return text
    return _edit(text, path, file, lambda table: table.pop(path[-1]))


def append_item(text: str, path: KeyPath, item: str, file: Path) -> str:
    """`text` with `item` appended to the list at `path`; unchanged if the list contains it."""
    present = _find(parse(text, file), path)
    if not isinstance(present, list):
        return set_key(text, path, [item], file)
    return text if item in present else _edit(text, path, file, lambda table: table[path[-1]].append(item))


def remove_item(text: str, path: KeyPath, item: str, file: Path) -> str:
    """`text` without `item` in the list at `path`."""

    def take_out(table: Any) -> None:
        items = table[path[-1]]
        for index in reversed([index for index, there in enumerate(items) if there == item]):
            del items[index]

    present = _find(parse(text, file), path)
    return _edit(text, path, file, take_out) if isinstance(present, list) and item in present else text


def _edit(text: str, path: KeyPath, file: Path, change: Callable[[Any], object]) -> str:
    """`text` after applying `change` to the table that holds `path`, with the layout preserved."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError
    from tomlkit.items import InlineTable

    wanted = _changed(text, path, file, change)
    try:
        document: Any = tomlkit.parse(text)
        table = document
        for depth, name in enumerate(path[:-1]):
            if name not in table:
                inline = isinstance(table, InlineTable)
                table[name] = tomlkit.inline_table() if inline else tomlkit.table(depth < len(path) - 2)
            table = table[name]
        change(table)
        return _checked(tomlkit.dumps(document), wanted, path, file)
    except TOMLKitError as error:
        raise _refusal(path, file) from error


# --- where a new key goes -------------------------------------------------------------------------------


def _put(table: Any, name: str, value: Any) -> None:
    """Sets a key; a new one goes after the table's last key, before the comments of the next table."""
    from tomlkit import items

    if name in table or not isinstance(table, items.Table):
        table[name] = value
        return
    body: list[Any] = table.value.body
    rest: list[Any] = []
    while body and body[-1][0] is None:
        rest.insert(0, body.pop())
    table[name] = value
    body.extend(rest)


def _with_top_key(text: str, name: str, value: object) -> str:
    """A new top-level key: after the last such key, before the first table and its comments."""
    end = "\r\n" if "\r\n" in text else "\n"
    line = f"{spell((name,))} = {toml_value(value)}{end}"
    # The text before a header is valid TOML; before a bracket inside a list or string it is not.
    brackets = (match.start() for match in re.finditer(r"^[ \t]*\[", text, re.MULTILINE))
    start = next((at for at in brackets if _is_toml(text[:at])), len(text))
    head, tables = text[:start], text[start:]
    lines = head.splitlines(keepends=True)
    while tables and lines and lines[-1].lstrip().startswith("#") and _is_toml("".join(lines[:-1])):
        tables = lines.pop() + tables
    kept = "".join(lines).rstrip()
    if kept:
        last, blank_after = kept.splitlines()[-1].lstrip(), lines[-1].strip() == ""
        kept += end * 2 if last.startswith("#") and blank_after else end
    return kept + line + (end + tables if tables else "")


def _is_toml(text: str) -> bool:
    import tomllib

    try:
        tomllib.loads(text)
    except ValueError:
        return False
    return True


# --- reading back ---------------------------------------------------------------------------------------


def _find(table: Table, path: KeyPath) -> Any:
    """The value of a key; None if it does not exist."""
    value: Any = table
    for name in path:
        value = cast("Table", value).get(name) if isinstance(value, dict) else None
    return value


def _changed(text: str, path: KeyPath, file: Path, change: Callable[[Any], object]) -> Table:
    """The expected content after applying `change` to the table that holds `path`."""
    wanted = table = parse(text, file)
    for depth, name in enumerate(path[:-1]):
        inner: Any = table.setdefault(name, {})
        if not isinstance(inner, dict):
            section = spell(path[: depth + 1])
            raise SettingsError(f"{file}: {section} must be a table, opened by [{section}]")
        table = cast("Table", inner)
    change(table)
    return wanted


def _checked(text: str, wanted: Table, path: KeyPath, file: Path) -> str:
    """`text`, if its content is as expected."""
    try:
        found = parse(text, file)
    except SettingsError:
        found = None
    if found is None or _without_empty(found) != _without_empty(wanted):
        raise _refusal(path, file)
    return text


def _refusal(path: KeyPath, file: Path) -> SettingsError:
    message = f"{file}: {spell(path)} cannot be changed without affecting the rest of the file"
    return SettingsError(message, "Edit the file in an editor.")


def _without_empty(table: Table) -> Table:
    """Drops empty tables, which have no meaning."""
    pruned = {
        key: _without_empty(cast("Table", value)) if isinstance(value, dict) else value
        for key, value in table.items()
    }
    return {key: value for key, value in pruned.items() if value != {}}
