"""Saves settings: `config.toml` from the command line, `state.toml` from the app.

Files are replaced atomically under a lock, and the user's formatting is preserved.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Literal

from crushpy.core.errors import SettingsError
from crushpy.core.paths import Paths
from crushpy.security.private_files import locked, write_private
from crushpy.settings import setting_keys, toml_edit
from crushpy.settings.files import project_rules_file, read_text, repository_path, user_files
from crushpy.settings.setting_keys import KeyPath, Leaf

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
            config: lambda text: toml_edit.set_key(text, path, value, config),
            state: lambda text: toml_edit.unset_key(text, path, state),
        },
    )
    return config


def save_choice(paths: Paths, key: str, value: object) -> Path:
    """Saves a choice made in the app to `state.toml`."""
    path, leaf = _known(key)
    checked = setting_keys.check(leaf, path, value)
    setting_keys.refuse_password(path, checked)
    state = user_files(paths)[1]
    _save(paths, {state: lambda text: toml_edit.set_key(text or _STATE_HEAD, path, checked, state)})
    return state


def unset_value(paths: Paths, key: str) -> list[Path]:
    """Removes a key, known or not, from `config.toml` and `state.toml`; returns the files that had it."""
    path = setting_keys.parse_key(key)
    files = user_files(paths)
    return _save(paths, {file: partial(toml_edit.unset_key, path=path, file=file) for file in files})


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
    _save(paths, {file: lambda text: toml_edit.append_item(text or head, path, item, file)})
    return file


def remove_rule(paths: Paths, rule: str, project: Path | None = None) -> list[Path]:
    """Removes a permission rule from the user's files, also those for a project; returns which had it."""

    def remove(text: str, file: Path) -> str:
        for kind in RULE_KINDS:
            text = toml_edit.remove_item(text, ("permissions", kind), rule.strip(), file)
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
    with ExitStack() as held:
        try:
            held.enter_context(locked(lock, LOCK_TIMEOUT_S))
        except TimeoutError:
            raise SettingsError(
                f"another crushpy has been saving settings for {LOCK_TIMEOUT_S:.0f} s ({lock})",
                "End that process, then retry.",
            ) from None
        except OSError as error:
            raise _not_written(lock.parent, error) from error
        edits = {file: (text := read_text(file), change(text)) for file, change in changes.items()}
        changed = {file: after for file, (before, after) in edits.items() if after != before}
        for file, text in changed.items():
            try:
                write_private(file, text.encode())
            except OSError as error:
                raise _not_written(file, error) from error
        return list(changed)


def _not_written(path: Path, error: OSError) -> SettingsError:
    return SettingsError(
        f"{path} cannot be written: {error.strerror}",
        "Check the folder's owner, permissions and free space, or set CRUSHPY_HOME to another folder.",
    )
