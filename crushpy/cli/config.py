"""`crushpy config`: reads and changes settings, and shows their sources."""

import os
from collections import defaultdict
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from crushpy.cli.command_helpers import (
    AsJson,
    add_group,
    argument,
    option,
    print_either,
    print_lines,
)
from crushpy.cli.workspace import load_here, print_warning, working_folder
from crushpy.core.errors import SettingsError
from crushpy.core.paths import Paths, project_root
from crushpy.permissions.trust import is_trusted
from crushpy.settings import files, setting_keys
from crushpy.settings.layers import Loaded
from crushpy.settings.save import set_value, unset_value
from crushpy.settings.setting_keys import KeyPath


def register(app: typer.Typer) -> None:
    values = {"get": get_command, "set": set_command, "unset": unset_command}
    # A value may start with a dash: `config set compaction.threshold -1` should get our own error.
    add_group(app, "config", values | {"list": list_settings, "path": path_command}, dashes="set")


def get_command(
    key: Annotated[str, argument("For instance compaction.method; a group prints all its keys.")],
) -> None:
    """Print the effective value."""
    path = setting_keys.parse_key(key)
    loaded = load_here()
    if setting_keys.find_leaf(path):
        value = loaded.shown_value(path)
        print("" if value is None else value if isinstance(value, str) else setting_keys.toml_value(value))
    else:
        _require_table(path)
        rows = _list_rows(loaded)
        print_lines(_lines([row for row in rows if setting_keys.parse_key(row["key"])[: len(path)] == path]))


def _require_table(path: KeyPath) -> None:
    if not path or setting_keys.general(path) not in setting_keys.tables():
        raise SettingsError(setting_keys.unknown(path), "`crushpy config list --all` shows every key.")


def set_command(
    key: Annotated[str, argument("For instance compaction.threshold.")],
    value: Annotated[str, argument('Lists: one,two or ["one", "two"].')],
) -> None:
    """Set a value in config.toml; it replaces an earlier choice in the app."""
    path = setting_keys.parse_key(key)
    _check_rules(path, value)
    file = set_value(Paths(), key, value)
    print(f"{setting_keys.spell(path)} is set in {file}")
    try:
        origin = load_here().origins.get(setting_keys.spell(path), "")
    except SettingsError as error:
        print_warning(f"saved, but another setting is invalid: {error.message}")
        return
    if origin not in (f"user: {file}", "default"):
        print_warning(f"the effective value comes from {origin}")


def unset_command(key: Annotated[str, argument("A key, or a group of keys.")]) -> None:
    """Remove a value from config.toml and state.toml."""
    path = setting_keys.parse_key(key)
    files = unset_value(Paths(), key)
    if not files and not setting_keys.find_leaf(path):
        _require_table(path)
    for file in files:
        print(f"{setting_keys.spell(path)} is removed from {file}")
    if not files:
        print(f"{setting_keys.spell(path)} was not set")


def list_settings(
    as_json: AsJson = False,
    everything: Annotated[
        bool, option("--all", "Also print unset keys, descriptions and allowed values.")
    ] = False,
) -> None:
    """Print every setting and its source."""
    rows = _list_rows(load_here(), everything)
    print_either(as_json, rows, _lines(rows, explain=everything))


def path_command(as_json: AsJson = False) -> None:
    """Print the settings files and whether they exist."""
    paths, cwd = Paths(), working_folder()
    config, state = files.user_files(paths)
    project, rules = files.project_file(cwd), files.project_rules_file(paths, cwd)
    layers = {"user": config, "state": state, "project rules": rules, "project": project}
    rows = [
        {"layer": layer, "path": str(file), "exists": os.path.exists(file)}  # noqa: PTH110
        for layer, file in layers.items()
    ]
    rows[-1]["trusted"] = is_trusted(paths, project_root(cwd))
    lines: list[str] = []
    for row in rows:
        notes = "exists" if row["exists"] else "does not exist"
        if row["exists"] and not row.get("trusted", True):
            notes = "ignored: not trusted (`crushpy trust` changes that)"
        lines.append(f"{row['layer']:<8} {row['path']}  ({notes})")
    print_either(as_json, rows, lines)


def _check_rules(path: KeyPath, text: str) -> None:
    """Permission rules have their own syntax, which the schema does not describe."""
    leaf = setting_keys.find_leaf(path)
    if leaf is None or not leaf.is_list or path[0] != "permissions":
        return
    from crushpy.permissions.rules import RuleSet
    from crushpy.tools.registry import tool_table

    rules: Any = setting_keys.check_text(leaf, path, text)
    RuleSet.from_strings(**{path[-1]: rules}, tools=tool_table())


def _list_rows(loaded: Loaded, everything: bool = False) -> list[dict[str, Any]]:
    """One row for each key that has a value; with `everything` also for those of models and providers."""
    rows: list[dict[str, Any]] = []
    set_paths = defaultdict[KeyPath, list[KeyPath]](list)
    for path in map(setting_keys.parse_key, loaded.origins):
        set_paths[setting_keys.general(path)].append(path)
    for leaf in setting_keys.leaves().values():
        details = {"description": leaf.description, "allowed": leaf.allowed}
        values = {path: loaded.shown_value(path) for path in set_paths[leaf.path]}
        shown = {path: value for path, value in values.items() if value is not None}
        for path, value in shown.items():
            row = {"key": setting_keys.spell(path), "value": value}
            rows.append(row | _origin(loaded, path) | details)
        if everything and not shown:
            rows.append({"key": leaf.key, "value": None, "layer": "unset", "source": "", **details})
    return rows


def _origin(loaded: Loaded, path: KeyPath) -> dict[str, str]:
    """The layer and its file, variable or flag; several if the lists of several layers are joined."""
    origins = [loaded.origins[setting_keys.spell(path)]]
    if path[0] == "permissions":
        found = dict.fromkeys(rule.origin for rule in loaded.rules if rule.kind == path[-1])
        origins = list(found) or origins
    pairs = [origin.partition(": ") for origin in origins]
    return {
        "layer": ", ".join(layer for layer, _, _ in pairs),
        "source": ", ".join(source for _, _, source in pairs if source),
    }


def _lines(rows: list[dict[str, Any]], explain: bool = False) -> Iterator[str]:
    """Rows as TOML that can be pasted into config.toml, with the layer as a comment."""
    for row in rows:
        unset = row["layer"] == "unset"
        line = f"# {row['key']} =" if unset else f"{row['key']} = {setting_keys.toml_value(row['value'])}"
        origin = ": ".join(filter(None, (row["layer"], row["source"])))
        about = [f"# {row['description']} Takes {row['allowed']}."] if explain else []
        yield from (*about, f"{line:<44}  # {origin}", *([""] if explain else []))
