"""What the app asks of the engine when it is needed: importing it takes a tenth of a second, in a thread."""

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from crushpy.core.start_options import StartOptions
from crushpy.tui.greeting import Greeting

if TYPE_CHECKING:
    from crushpy.engine.conversation import Conversation


async def open_for_app(options: StartOptions) -> "tuple[Conversation, tuple[str, ...]]":
    """The conversation that was asked for, and what the user should know about its settings."""
    await asyncio.to_thread(_load)
    from crushpy.bootstrap import ProjectEnvironment, open_conversation

    around = ProjectEnvironment(Path(options.cwd), options.setting_flags())
    asked = msgspec.structs.replace(options, interactive=True)
    conversation = await open_conversation(around, asked)
    return conversation, (*around.loaded.warnings, *conversation.files.recovered)


def _load() -> None:
    import crushpy.bootstrap  # noqa: F401  # pyright: ignore[reportUnusedImport]


def chosen_settings(cwd: Path, key: str = "") -> list[str]:
    """Settings that were changed, one line each with its layer; with a `key` all that begin with it."""
    from crushpy.bootstrap import ProjectEnvironment
    from crushpy.settings.setting_keys import parse_key

    loaded = ProjectEnvironment(cwd).loaded
    rows: list[str] = []
    for name, origin in loaded.origins.items():
        if name.startswith(key) if key else origin != "default":
            value: Any = msgspec.to_builtins(loaded.settings)
            for part in parse_key(name):
                value = value.get(part, "")
            rows.append(f"{name} = {value!r}  ({origin})")
    return rows or ["Nothing was chosen yet." if not key else f"No setting begins with {key}."]


def set_setting(key: str, value: str) -> str:
    """Sets a value for good; what to tell the user."""
    from crushpy.core.errors import CrushpyError
    from crushpy.core.paths import Paths
    from crushpy.settings import set_value

    if key.startswith("permissions."):
        return f"Rules are not set from here: crushpy config set {key} ..."
    try:
        return f"{key} is set in {set_value(Paths(), key, value)}; it holds from the next start on."
    except CrushpyError as error:
        return str(error)


def answer(conversation: "Conversation", call_id: str, kind: Any, words: str, key: str) -> None:
    """Passes the user's answer to an approval on."""
    from crushpy.engine.approvals import Answer

    conversation.answer(call_id, Answer(kind, words, key))


def brought_by_project(cwd: Path) -> tuple[str, list[str]]:
    """The project of this folder, and what it brings."""
    from crushpy.core.paths import project_root
    from crushpy.permissions.trust import brings

    root = project_root(cwd)
    return str(root), brings(root)


def trust_project(cwd: Path) -> str:
    """Trusts the project of this folder; what to tell the user."""
    from crushpy.core.errors import CrushpyError
    from crushpy.core.paths import Paths, project_root
    from crushpy.permissions.trust import add_trusted

    root = project_root(cwd)
    try:
        add_trusted(Paths(), root)
    except CrushpyError as error:
        return str(error)
    return f"Trusted: {root}. Its settings and templates count from the next start on."


def greeting_for(conversation: "Conversation") -> Greeting:
    """What the card of a new conversation says of it and of its folder, but for `last`: see `last_here`."""
    from crushpy import __version__
    from crushpy.engine.environment import instruction_files

    info = conversation.info
    folder, branch = place_of(info.cwd)
    names = [_shortened(Path(path), Path(info.cwd)) for path in instruction_files(info.system)]
    return Greeting(__version__, folder, branch, info.model, info.compaction, tuple(names))


async def last_here(conversation: "Conversation") -> str:
    """The latest conversation of this folder; empty if there is none, or none can be read."""
    from crushpy.core.errors import CrushpyError
    from crushpy.engine.session.export import age

    try:
        rows = await conversation.latest_here()
    except CrushpyError:
        return ""
    if not rows:
        return ""
    ago = age(time.time() - rows[0].updated_at)
    return f"“{rows[0].title[:60]}”, {ago if ago == 'now' else f'{ago} ago'}"


def place_of(cwd: str) -> tuple[str, str]:
    """A folder as people write it, and its branch."""
    from crushpy.engine.environment import git_branch

    path = Path(cwd)
    home = Path.home()
    folder = f"~/{path.relative_to(home)}" if path != home and path.is_relative_to(home) else cwd
    return ("~" if path == home else folder), git_branch(path)


def _shortened(path: Path, cwd: Path) -> str:
    if path.is_relative_to(cwd):
        return str(path.relative_to(cwd))
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
