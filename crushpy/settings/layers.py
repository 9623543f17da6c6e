"""Merges the layers: defaults, the user's files, the project's file, the environment, flags.

A later layer overrides an earlier one, except for lists such as permission rules: those of all layers are
joined, so that no layer can remove what another one denies.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from crushpy.core.access import STRICTNESS
from crushpy.core.errors import SettingsError
from crushpy.core.messages import Data
from crushpy.core.paths import Paths, project_root, provided_files
from crushpy.core.start_options import StartOptions, flags_of
from crushpy.settings import files, setting_keys
from crushpy.settings.schema import Settings
from crushpy.settings.setting_keys import KeyPath, Leaf, spell

DEFAULT = "default"

NOT_SETTINGS = frozenset(
    f"CRUSHPY_{name}" for name in ("HOME", "RETRY_BASE", "LOCAL_PORTS", "LEASE_SECONDS", "BUBBLEWRAP")
)
"""Variables that are not settings."""

_FORBIDDEN_KEYS = (
    "providers mcp lsp hooks status_line web_search database_url undo permissions.allow"
    " permissions.private_hosts sandbox.env sandbox.network sandbox.write sandbox.read sandbox.own_code"
    " budget sandbox.processes sandbox.memory_mb sandbox.file_mb"
)
PROJECT_MAY_NOT: frozenset[KeyPath] = frozenset(tuple(key.split(".")) for key in _FORBIDDEN_KEYS.split())
"""Keys that would let a repository send keys elsewhere or loosen permissions."""

PROJECT_MAY_TIGHTEN: dict[KeyPath, tuple[str, ...]] = {
    ("permissions", "mode"): STRICTNESS,
    ("sandbox", "mode"): ("off", "on"),
    ("sandbox", "auto_allow"): ("True", "False"),
}
"""Values in order of strictness: a project may move down the list, never up."""

FLAGS = {flag.setting: flag.names[0] for _, flag in flags_of(StartOptions).values() if flag.setting}


class RuleOrigin(Data, frozen=True):
    """One permission rule and its source."""

    kind: str
    """allow, ask or deny."""
    rule: str
    origin: str


class Loaded(Data, frozen=True):
    """The effective settings, their sources, and warnings for the user."""

    settings: Settings
    origins: dict[str, str]
    """For each key `default`, or the layer and its file, variable or flag: `environment: CRUSHPY_MODEL`."""
    warnings: tuple[str, ...] = ()
    rules: tuple[RuleOrigin, ...] = ()
    """Every permission rule of every layer, with duplicates."""

    def shown_value(self, path: KeyPath) -> Any:
        """The value of a key, without a password; None if it has none."""
        value: Any = self.settings
        for name in path:
            value = cast("Any", value).get(name) if isinstance(value, dict) else getattr(value, name, None)
        if path == ("database_url",):
            import re

            shown = re.sub(r"^([^:/]*://[^:/@]*):.*@", r"\1:***@", value)
            return re.sub(r"([?&]password=)[^&]*", r"\1***", shown)
        return value


def load(
    paths: Paths,
    cwd: Path,
    *,
    trusted: bool = False,
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Loaded:
    """Merges all layers. `trusted`: whether the project around `cwd` may bring settings.

    `flags` maps dotted keys to values or text; None counts as not given.
    """
    merge = _Merge()
    config, state = files.user_files(paths)
    merge.warnings.extend(files.guard_home(paths))
    merge.add_file("user", config)
    merge.add_file("state", state)
    merge.add_file("project rules", files.project_rules_file(paths, cwd))
    project = files.project_file(cwd)
    if trusted and os.path.exists(project) and project.resolve() != config.resolve():  # noqa: PTH110
        merge.add_file("project", project, PROJECT_MAY_NOT)
    root = project_root(cwd)
    unused = [] if trusted or str(root) == os.environ.get("HOME") else provided_files(root)
    if names := [str(path.relative_to(root)) for path in unused if path.resolve() != config.resolve()]:
        merge.warnings.append(
            f"{', '.join(names)} in {root} is ignored: this project is not trusted "
            "(run `/trust` or `crushpy trust` to use it)"
        )
    merge.add_environment(os.environ if environ is None else environ)
    merge.add_flags(flags or {})
    return merge.loaded()


class _Merge:
    """The layers merged so far."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.origins = {
            leaf.key: DEFAULT
            for leaf in setting_keys.leaves().values()
            if setting_keys.ANY_NAME not in leaf.path
        }
        self.warnings: list[str] = []
        self.rules: list[RuleOrigin] = []

    def add_file(self, layer: str, file: Path, forbidden: frozenset[KeyPath] = frozenset()) -> None:
        self._add_table(files.parse(files.read_text(file), file), (), layer, str(file), forbidden)

    def add_environment(self, environ: Mapping[str, str]) -> None:
        for name in sorted(environ):
            if not name.startswith("CRUSHPY_") or name in NOT_SETTINGS or not environ[name]:
                continue
            # CRUSHPY_COMPACTION__METHOD is compaction.method; a name in mixed case stays as it is.
            parts = name.removeprefix("CRUSHPY_").split("__")
            path = tuple(part.lower() if part.isupper() else part for part in parts)
            leaf = setting_keys.find_leaf(path)
            if leaf:
                self._put(leaf, path, environ[name], "environment", name)
            else:
                meant = setting_keys.variable(setting_keys.renamed(path)) if path[0] == "keys" else name
                near = setting_keys.nearest(meant, [*map(setting_keys.variable, setting_keys.leaves())])
                hint = f"; did you mean {near}?" if near else ""
                self.warnings.append(f"environment: {name} is not a setting{hint}")

    def add_flags(self, flags: Mapping[str, object]) -> None:
        for key, value in flags.items():
            if value is None:
                continue
            path = setting_keys.parse_key(key)
            leaf = setting_keys.find_leaf(path)
            if not leaf:
                raise SettingsError(setting_keys.unknown(path))
            self._put(leaf, path, value, "flag", FLAGS.get(key, key))

    def loaded(self) -> Loaded:
        settings = msgspec.convert(self.values, Settings)
        return Loaded(settings, self.origins, tuple(self.warnings), tuple(self.rules))

    def _add_table(
        self, table: dict[str, Any], prefix: KeyPath, layer: str, where: str, forbidden: frozenset[KeyPath]
    ) -> None:
        for name, value in table.items():
            path = (*prefix, name)
            leaf = setting_keys.find_leaf(path)
            if path in forbidden:
                self.warnings.append(f"{where}: {spell(path)} is ignored: a project may not set it")
            elif leaf and layer == "project" and self._loosens(leaf, path, value, where):
                self.warnings.append(
                    f"{where}: {spell(path)} = {setting_keys.show(value)} is ignored: "
                    "a project may not loosen it"
                )
            elif leaf:
                setting_keys.refuse_password(path, value, where)
                self._keep(leaf, path, setting_keys.check(leaf, path, value, where), f"{layer}: {where}")
            elif setting_keys.general(path) not in setting_keys.tables():
                self.warnings.append(f"{where}: {setting_keys.unknown(path, value)}")
            elif isinstance(value, dict):
                self._add_table(cast("dict[str, Any]", value), path, layer, where, forbidden)
            else:
                shown, section = setting_keys.show(value), f"[{spell(path)}]"
                raise SettingsError(f"{where}: {spell(path)} = {shown}: must be a table, opened by {section}")

    def _loosens(self, leaf: Leaf, path: KeyPath, value: object, where: str) -> bool:
        """Whether a project's value allows more than the user's."""
        order = PROJECT_MAY_TIGHTEN.get(path)
        if order is None:
            return False
        chosen: Any = self.values
        for name in path:
            chosen = chosen.get(name, {})
        before = leaf.default if chosen == {} else chosen
        return order.index(str(setting_keys.check(leaf, path, value, where))) < order.index(str(before))

    def _put(self, leaf: Leaf, path: KeyPath, value: object, layer: str, where: str) -> None:
        """Outside of files a text may represent any value."""
        reader = setting_keys.check_text if isinstance(value, str) else setting_keys.check
        self._keep(leaf, path, reader(leaf, path, cast("Any", value), where), f"{layer}: {where}")

    def _keep(self, leaf: Leaf, path: KeyPath, checked: object, origin: str) -> None:
        table = self.values
        for name in path[:-1]:
            table = table.setdefault(name, {})
        kind, added = path[-1], cast("tuple[str, ...]", checked)
        if not leaf.is_list or setting_keys.ANY_NAME in leaf.path:
            table[kind] = checked
            self.origins[spell(path)] = origin
        elif added:
            if path[0] == "permissions":
                self.rules += [RuleOrigin(kind, rule, origin) for rule in added]
            table[kind] = tuple(dict.fromkeys((*table.get(kind, ()), *added)))
            before = self.origins[leaf.key]
            self.origins[leaf.key] = origin if before == DEFAULT else f"{before}, {origin}"
