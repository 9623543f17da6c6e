"""All directories and files that crushpy uses."""

import os
from functools import cached_property
from pathlib import Path

from crushpy.core.mcp_names import PROJECT_FILE

PROJECT_FOLDER = ".crushpy"
PROJECT_HOOKS = (f"{PROJECT_FOLDER}/hooks.json", ".claude/settings.json", ".claude/settings.local.json")
"""The files in which a project configures hooks."""
WORKTREES = "worktrees"
"""The name of the folder for worktrees of tasks."""


def _in_data_dir(name: str) -> "cached_property[Path]":
    def find(paths: "Paths") -> Path:
        return paths.data_dir / name

    return cached_property(find)


class Paths:
    """The locations of one user's files. `CRUSHPY_HOME` puts all of them into one folder."""

    def __init__(self, home: str | None = None) -> None:
        self._home = home if home is not None else os.environ.get("CRUSHPY_HOME", "")

    @cached_property
    def config_dir(self) -> Path:
        if self._home:
            return Path(self._home).expanduser().absolute()
        import platformdirs

        return Path(platformdirs.user_config_dir("crushpy", appauthor=False))

    @cached_property
    def data_dir(self) -> Path:
        if self._home:
            return self.config_dir
        import platformdirs

        return Path(platformdirs.user_data_dir("crushpy", appauthor=False))

    @property
    def config_file(self) -> Path:
        """Settings that the user writes."""
        return self.config_dir / "config.toml"

    state_file = _in_data_dir("state.toml")
    """Settings chosen in the app."""
    project_rules = _in_data_dir("project_rules")
    """Permission rules that the user made for single projects, a file for each."""
    consents = _in_data_dir("consents.json")
    """What the user has accepted: projects, their hooks and MCP servers, definitions of tools, plugins."""
    mcp = _in_data_dir("mcp")
    """What is known of MCP servers."""
    plugins = _in_data_dir("plugins")
    key_file = _in_data_dir("keys.json")
    """The providers that have a key in the system keyring, and keys stored here for want of a keyring."""
    model_lists = _in_data_dir("model_lists.json")
    """A cache of the models that servers offer."""
    first_frames = _in_data_dir("first_frames.json")
    """Pictures of the app that a start shows until it is up."""
    recent_commands = _in_data_dir("recent_commands.json")
    """Commands of the app by their action, the last used first."""
    learnt_file = _in_data_dir("learnt.json")
    """Values learnt about models on their servers."""
    database = _in_data_dir("crushpy.db")

    @property
    def templates(self) -> Path:
        return self.config_dir / "templates"

    logs = _in_data_dir("logs")
    sandboxes = _in_data_dir("sandboxes")
    """The private /tmp of each running conversation."""
    instructions_file = _in_data_dir("instructions.json")
    """Hashes of the instruction files that were read at the last start in each folder."""
    put_aside = _in_data_dir("put_aside")
    """Files that commands created in places from which they would be run automatically."""
    outputs = _in_data_dir("outputs")
    """Complete outputs that were too large for a message."""
    worktrees = _in_data_dir(WORKTREES)
    undo = _in_data_dir("undo")
    """File contents before changes."""


def private_dir(path: Path) -> Path:
    """Creates `path` and missing parents, accessible to their owner only: `mkdir` opens parents to others."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in (*reversed(missing), path):
        folder.mkdir(mode=0o700, exist_ok=True)
    return path


SHARED_FOLDERS = (".agents", ".claude")
"""The folders of other agents, in a project and in the home folder."""
CODE_FILES = frozenset((".envrc", ".mcp.json", ".devcontainer.json"))
CODE_FOLDERS = frozenset(
    (
        *(".crushpy", ".agents", ".claude", ".codex", ".cursor", ".gemini"),
        *(".vscode", ".devcontainer", ".zed"),
    )
)
"""Other programs execute what is in them."""
GUARDED_NAMES = CODE_FILES | CODE_FOLDERS | {".git", ".husky", ".githooks", ".idea"}
"""They change what git, crushpy, editors and other agents run: only a rule that spells one covers it."""


def extension_folders(paths: Paths, root: Path | None) -> tuple[list[Path], list[Path]]:
    """Where a trusted project at `root` and the user may have extensions, those with precedence first."""
    project = [root / name for name in (PROJECT_FOLDER, *SHARED_FOLDERS)] if root else []
    home = os.path.expanduser("~")  # noqa: PTH111  # does not raise without a home folder
    return project, [paths.config_dir, *(Path(home, name) for name in SHARED_FOLDERS)]


_PROVIDED = ("config.toml", "templates", "hooks.json", "settings.json", "skills", "commands", "agents")


def provided_files(root: Path) -> list[Path]:
    """The files and folders of a project that are used only if it is trusted."""
    folders = [root / name for name in (PROJECT_FOLDER, *SHARED_FOLDERS)]
    found = [*(folder / name for folder in folders for name in _PROVIDED), root / PROJECT_FILE]
    return [path for path in found if os.path.lexists(path)]


def project_dir(cwd: Path) -> Path:
    """The project's own crushpy folder: the nearest one from `cwd` up to the repository's root."""
    return project_root(cwd) / PROJECT_FOLDER


def project_root(cwd: Path) -> Path:
    """The nearest folder with `.crushpy` or `.git`, from `cwd` upwards; `cwd` itself if there is none."""
    for folder in (cwd, *cwd.parents):
        if (folder / PROJECT_FOLDER).is_dir() or (folder / ".git").exists():
            return folder
    return cwd
