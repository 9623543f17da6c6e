"""Saves settings: `config.toml` from the command line, `state.toml` from the app.

Files are replaced atomically under a lock, and the user's formatting is preserved.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

from crushpy.core.errors import SettingsError
from crushpy.core.paths import Paths
from crushpy.security.private_files import locked, write_private
from crushpy.settings import setting_keys
from crushpy.settings.files import parse, project_rules_file, read_text, repository_path, user_files
from crushpy.settings.setting_keys import KeyPath, Leaf, spell, toml_value

RuleKind = Literal["allow", "ask", "deny"]
RULE_KINDS: tuple[RuleKind, ...] = ("allow", "ask", "deny")

_STATE_HEAD = "# Written by crushpy: choices made in the app. Your own settings belong in config.toml.\n\n"
LOCK_TIMEOUT_S = 10.0


def set_value(paths: Paths, key: str, text: str) -> Path:
    """Sets a key in `config.toml` and removes it from `state.toml`, which would override it."""
    path, leaf = _known(key)
    value = setting_keys.check_text(leaf, path, text)
    setting_keys.refuse_password(path, value)
    config, state = user_files(paths)
    _save(
        paths,
        {
            config: lambda text: set_key(text, path, value, config),
            state: lambda text: unset_key(text, path, state),
        },
    )
    return config


def save_choice(paths: Paths, key: str, value: object) -> Path:
    """Saves a choice made in the app to `state.toml`."""
    path, leaf = _known(key)
    checked = setting_keys.check(leaf, path, value)
    setting_keys.refuse_password(path, checked)
    state = user_files(paths)[1]
    _save(paths, {state: lambda text: set_key(text or _STATE_HEAD, path, checked, state)})
    return state


def unset_value(paths: Paths, key: str) -> list[Path]:
    """Removes a key, known or not, from `config.toml` and `state.toml`; returns the files that had it."""
    path = setting_keys.parse_key(key)
    files = user_files(paths)
    return _save(paths, {file: partial(unset_key, path=path, file=file) for file in files})


def add_rule(paths: Paths, kind: RuleKind, rule: str, project: Path | None = None) -> Path:
    """Saves a permission rule to `state.toml`, or for the project around a folder."""
    rule = rule.strip()
    if kind not in RULE_KINDS or not rule:
        raise SettingsError(f"permissions.{kind}: {setting_keys.show(rule)} is not a rule")
    return add_item(paths, ("permissions", kind), rule, project)


def add_item(paths: Paths, path: setting_keys.KeyPath, item: str, project: Path | None = None) -> Path:
    """Appends to a list in `state.toml`, or in the rules for the project around a folder."""
    file, head = user_files(paths)[1], _STATE_HEAD
    if project is not None:
        file = project_rules_file(paths, project)
        head = f"# Written by crushpy: your rules for {ascii(str(repository_path(project)))[1:-1]}\n\n"
    _save(paths, {file: lambda text: append_item(text or head, path, item, file)})
    return file


def remove_rule(paths: Paths, rule: str, project: Path | None = None) -> list[Path]:
    """Removes a permission rule from the user's files, also those for a project; returns which had it."""

    def remove(text: str, file: Path) -> str:
        for kind in RULE_KINDS:
            text = remove_item(text, ("permissions", kind), rule.strip(), file)
        return text

    files = (*user_files(paths), *([project_rules_file(paths, project)] if project else []))
    return _save(paths, {file: partial(remove, file=file) for file in files})


def _known(key: str) -> tuple[KeyPath, Leaf]:
    path = setting_keys.parse_key(key)
    leaf = setting_keys.find_leaf(path)
    if not leaf:
        raise SettingsError(setting_keys.unknown(path), "`crushpy config list --all` shows every key.")
    return path, leaf


# --- files ----------------------------------------------------------------------------------------------


def _save(paths: Paths, changes: Mapping[Path, Callable[[str], str]]) -> list[Path]:
    """Replaces the text of each file, all edits before the first write; returns the files that changed.

    Saves are serialised, also across processes.
    """
    lock = user_files(paths)[1].with_name(".settings.lock")
    place = lock.parent
    try:
        with locked(lock, LOCK_TIMEOUT_S):
            edits = {file: (text := read_text(file), change(text)) for file, change in changes.items()}
            changed = {file: after for file, (before, after) in edits.items() if after != before}
            for place, text in changed.items():
                write_private(place, text.encode())
    except TimeoutError:
        raise SettingsError(
            f"another crushpy has been saving settings for {LOCK_TIMEOUT_S:.0f} s ({lock})",
            "End that process, then retry.",
        ) from None
    except OSError as error:
        raise SettingsError(
            f"{place} cannot be written: {error.strerror}",
            "Check the folder's owner, permissions and free space, or set CRUSHPY_HOME to another folder.",
        ) from error
    return list(changed)


# --- editing one value in a TOML text: comments, order and blank lines are preserved
#
# Pure: text in, text out. Each edit is parsed again and refused unless it means exactly what was asked for,
# so that no unusual layout can lose a setting.


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
        while item in table[path[-1]]:
            table[path[-1]].remove(item)

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
