"""The configured hooks in Claude Code's form, read leniently from files and settings; and its forms of tools,
results and transcripts, so that hooks run unchanged."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from crushpy.context.overrides import apply_overrides, users_edits
from crushpy.core.access import Access
from crushpy.core.errors import SettingsError
from crushpy.core.mcp_names import MCP_PREFIX
from crushpy.core.messages import Json, Message, Overrides, ToolCall
from crushpy.core.paths import PROJECT_HOOKS, Paths, private_dir
from crushpy.engine.session.session import LiveSession
from crushpy.extensions.extension_files import Unreadable, read_extension
from crushpy.extensions.plugins import installed_plugins
from crushpy.permissions.consents import add_consent, define, find_consent, show_difference
from crushpy.sandbox.confinement import Unconfined
from crushpy.security.sanitize import clean, one_line
from crushpy.settings.layers import load
from crushpy.tools.base import Outcome

EVENTS = (
    *("SessionStart", "SessionEnd", "UserPromptSubmit", "PreToolUse", "PermissionRequest", "PostToolUse"),
    *("PostToolUseFailure", "Notification", "Stop", "SubagentStop", "PreCompact", "PostCompact"),
)
_NAMES = re.compile(r"[\w ,|-]*")
SETTINGS = Path("[hooks]")
FORM = '[{"matcher": "Bash", "hooks": [{"type": "command", "command": "..."}]}]'
"""The hooks of one event."""
TOML_FORM = 'a table [[hooks.{event}]] with hooks = [{{ type = "command", command = "..." }}]'
_EXAMPLES = {
    "timeout": '"timeout": 10, a number of seconds',
    "command": '"command": "...", one line for the shell',
    "matcher": '"matcher": "Edit|Write", names of tools or a regular expression',
    "if": '"if": "Bash(git commit:*)", a rule',
    "async": '"async": true, or nothing',
}
"""How to write the fields of a hook whose value has another type."""


class HookCommand(msgspec.Struct, frozen=True):
    """One hook: when it runs, and what."""

    type: str = "command"
    command: str = ""
    timeout: float | None = None
    """Seconds."""
    condition: str = msgspec.field(default="", name="if")
    """A rule such as `Bash(git commit:*)` that the call must match."""
    background: bool = msgspec.field(default=False, name="async")
    wakes: bool = msgspec.field(default=False, name="asyncRewake")
    """Runs in the background, and the agent gets what it objects to."""
    wake_message: str = msgspec.field(default="", name="rewakeMessage")
    """Before those words."""
    wake_summary: str = msgspec.field(default="", name="rewakeSummary")
    """What the user is told then."""
    event: str = ""
    matcher: str = ""
    file: Path = Path()
    project: bool = False
    """Its file belongs to the project, not to the user."""
    plugin: str = ""

    @property
    def is_async(self) -> bool:
        return self.background or self.wakes

    def matches(self, event: str, names: Sequence[str], given: Json) -> bool:
        """Whether it is meant for an event about something of these `names`, with this tool input."""
        if event != self.event or (self.condition and not _meets(self.condition, names, given)):
            return False
        if self.matcher in ("", "*") or not names:
            return True
        if _NAMES.fullmatch(self.matcher):
            return any(name.strip() in names for name in re.split(r"[|,]", self.matcher))
        return any(re.search(self.matcher, name) for name in names)


class HookGroup(msgspec.Struct, frozen=True):
    hooks: list[HookCommand]
    matcher: str | None = None


def _meets(rule: str, names: Sequence[str], given: Json) -> bool:
    tool, _, pattern = rule.removesuffix(")").partition("(")
    value = str(next((given[key] for key in ("command", "file_path", "path", "url") if key in given), ""))
    pattern = pattern.replace(":*", "*") or "*"
    return tool in names and any(fnmatchcase(part.strip(), pattern) for part in re.split(r"&&|[;|\n]", value))


def _files(
    paths: Paths, root: Path | None, settings: Json | None, *, plugins: bool
) -> Iterator[tuple[Path, str, Json | None]]:
    """Files that may configure hooks, the user's first; the plugin's folder; the content if it is known."""
    yield SETTINGS, "", settings or {}
    yield paths.config_dir / "hooks.json", "", None
    for plugin in installed_plugins(paths) if plugins else ():
        for name in ("hooks/hooks.json", *plugin.named["hooks"]):
            yield plugin.folder / name, str(plugin.folder), None
        if isinstance(inline := plugin.manifest.get("hooks"), dict):
            yield plugin.folder, str(plugin.folder), cast(Json, inline)
    for name in PROJECT_HOOKS if root else ():
        yield Path(root or "", name), "", None


class HookSetup(NamedTuple):
    commands: Sequence[HookCommand]
    problems: Sequence[str]
    """Why other hooks of the files are not used."""
    runner: Unconfined
    """Runs the user's own hooks."""
    project: Path
    """The project that the user has accepted hooks of: its root, or what a copy was made from."""


def read_hooks(
    paths: Paths, root: Path | None, settings: Json | None = None, *, plugins: bool = True
) -> tuple[list[HookCommand], list[str]]:
    """The usable hooks, the user's first, and what is wrong with others. `root`: of a trusted project."""
    problems: list[str] = []
    found: list[HookCommand] = []
    for file, plugin, known in _files(paths, root, settings, plugins=plugins):
        if known is None and not file.is_file():
            continue
        own = {"file": file, "plugin": plugin, "project": root is not None and file.is_relative_to(root)}
        text = "{}"
        try:
            text = text if known is not None else read_extension(file, file.parent)
            content = known or msgspec.json.decode(text, type=dict[str, Any])
            bare = {} if file.parent.name == ".claude" else content
            events = msgspec.convert(content.get("hooks", bare), dict[str, Any])
        except (Unreadable, RecursionError) as error:
            problems.append(f"{file} is not used: {one_line(str(error))}")
            continue
        except msgspec.MsgspecError as error:
            byte = re.search(r"byte (\d+)", str(error))
            line = f" (see line {len(text.encode()[: int(byte[1])].splitlines()) or 1})" if byte else ""
            problems.append(
                f'{file} is not used: write JSON like {{"hooks": {{"PreToolUse": {FORM}}}}}{line}'
            )
            continue
        for event, groups in events.items():
            where = f"{file}: {one_line(event)[:60]}"
            try:
                if event in EVENTS:
                    found += _hooks(groups, {**own, "event": event}, where, problems)
                elif event not in ("description", "$schema"):
                    meant = "".join(get_close_matches(event, EVENTS, 1, 0.8))
                    hint = f": write {meant}" if meant else f". There are: {', '.join(EVENTS)}"
                    problems.append(f"{where} is not an event that crushpy has; its hooks never run{hint}")
            except (msgspec.ValidationError, re.error, RecursionError) as error:
                problems.append(f"{where} is not used: write {_advice(error, event, file)}")
    return found, list(dict.fromkeys(problems))


def _advice(error: Exception, event: str, file: Path) -> str:
    """What to write in place of something that cannot be read."""
    if isinstance(error, re.error):
        return f"{_EXAMPLES['matcher']}: {error}"
    field = str(error).rpartition(".")[2].rstrip("`")
    return _EXAMPLES.get(field) or (TOML_FORM.format(event=event) if file == SETTINGS else FORM)


def _hooks(groups: Any, own: Json, where: str, problems: list[str]) -> Iterator[HookCommand]:
    for group in msgspec.convert(groups, list[HookGroup]):
        matcher = group.matcher or ""
        re.compile("" if matcher == "*" else matcher)
        for hook in group.hooks:
            if hook.type != "command":
                problems.append(f'{where}: a hook of type {hook.type!r} is not used: write "type": "command"')
            elif not hook.command.strip() or "\0" in hook.command:
                problems.append(
                    f"{where}: a hook without a command is not used: write {_EXAMPLES['command']}"
                )
            else:
                yield msgspec.structs.replace(hook, **own, matcher=matcher)


def hooks_text(hooks: Iterable[HookCommand], root: Path) -> str:
    """A project's hooks as they are shown and accepted, with the scripts that they name."""
    lines: list[str] = []
    for hook in hooks:
        about = (hook.file.name, f"{hook.event} {hook.matcher}".strip(), hook.condition, hook.timeout)
        lines += f"{' '.join(str(each) for each in about if each)}: {hook.command}".splitlines()
    return define(lines, (hook.command for hook in hooks), root)


def accept_hooks(
    paths: Paths, root: Path, *, only_list: bool = False, how: str = "crushpy trust"
) -> list[str]:
    """Accepts the hooks and `worktree.setup` of a project as they are now, and lists them; those that were
    accepted before and have changed as a difference."""
    found = {"hooks": hooks_text([hook for hook in read_hooks(paths, root)[0] if hook.project], root)}
    with suppress(SettingsError):  # the next start reports it
        loaded = load(paths, root, trusted=True)
        if loaded.origins["worktree.setup"].startswith("project:"):
            found["worktree.setup"] = setup_text(loaded.settings.worktree.setup, root)
    lines: list[str] = []
    for kind, text in ((kind, text) for kind, text in found.items() if text):
        assert kind in ("hooks", "worktree.setup")
        before = find_consent(paths, kind, os.path.realpath(root))
        changed = show_difference(before.definition, text) if before else ""
        lines += clean(f"{kind}:\n{changed or text}").splitlines()
        if not only_list:
            add_consent(paths, kind, os.path.realpath(root), text, how=how)
    return lines


def setup_text(command: str, root: Path) -> str:
    """`worktree.setup` of a project, as it is shown and accepted."""
    return define(command.splitlines(), (command,), root)


TOOL_NAMES = {
    **{"bash": "Bash", "edit": "Edit", "multiedit": "MultiEdit", "write": "Write", "view": "Read"},
    **{"glob": "Glob", "grep": "Grep", "ls": "LS", "fetch": "WebFetch", "task": "Task", "skill": "Skill"},
    **{"todos": "TodoWrite", "job_output": "BashOutput", "job_kill": "KillShell"},
}
_RENAMED = {"background": "run_in_background", "include": "glob", "agent": "subagent_type", "text": "content"}
"""Our arguments that have other names there; `text` is that of a todo."""
_ORIGINAL = {theirs: ours for ours, theirs in _RENAMED.items()}


def tool_names(call: ToolCall, accesses: Sequence[Access]) -> tuple[str, ...]:
    """The names that matchers may use, Claude Code's first."""
    served = [access.tool for access in accesses if access.tool.startswith(MCP_PREFIX)]
    return (*served, TOOL_NAMES.get(call.name, call.name), call.name)


def tool_input(call: ToolCall, cwd: str) -> Json:
    """The arguments of a call under the names that Claude Code's tools have; paths are absolute."""
    if call.name not in TOOL_NAMES:
        return call.args.get("arguments") or {} if call.name == "mcp" else call.args
    given = _renamed(call.args, _RENAMED, 1_000)
    for name in ("file_path", "path"):
        if isinstance(given.get(name), str):
            given[name] = os.path.normpath(Path(cwd, Path(given[name]).expanduser()))
    return given


def own_args(call: ToolCall, updated: Json) -> Json:
    """`updated` input of a tool as the arguments of our own. Whether they are valid is checked later."""
    if call.name not in TOOL_NAMES:
        return {**call.args, "arguments": updated} if call.name == "mcp" else updated
    return _renamed(updated, _ORIGINAL, 1 / 1_000)


def _renamed(args: Json, names: dict[str, str], factor: float) -> Json:
    found: Json = {names.get(name, name): value for name, value in args.items()}
    if isinstance(found.get("timeout"), int | float):
        found["timeout"] = max(1, int(found["timeout"] * factor))
    todos: Any = found.get("todos")
    if isinstance(todos, list):
        found["todos"] = [_renamed(todo, names, 1) if isinstance(todo, dict) else todo for todo in todos]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return found


def tool_response(call: ToolCall, given: Json, outcome: Outcome) -> Json:
    if call.name == "bash":
        return {"stdout": outcome.text, "stderr": "", "interrupted": bool(outcome.ended), "isImage": False}
    return {"filePath": given.get("file_path"), "success": True, "content": outcome.text}


class TranscriptFile:
    """A session as a file of JSON lines, as the user left it; each call of `write` appends what is new."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: dict[str, tuple[int, Overrides]] = {}

    def write(self, session: LiveSession) -> str:
        """The path of the file, which is complete up to now; empty if it cannot be written."""
        name, edits = session.info.id, users_edits(session.overrides.values())
        done, before = self._written.get(name, (0, edits))
        done = done if before == edits else 0
        shown = apply_overrides(session.history, edits)
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | (os.O_APPEND if done else os.O_TRUNC)
        try:
            path = private_dir(self._folder) / f"transcript-{name}.jsonl"
            with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
                file.writelines(_line(message, session) for message in shown[done:])
        except OSError:
            return ""
        self._written[name] = len(shown), edits
        return str(path)


def _line(message: Message, session: LiveSession) -> bytes:
    role = "assistant" if message.role == "assistant" else "user"
    text = message.text or (message.seed.summary if message.seed else "")
    content: list[Json] = [{"type": "text", "text": text}] if text else []
    for call in message.calls:
        name = TOOL_NAMES.get(call.name, call.name)
        content.append({"type": "tool_use", "id": call.id, "name": name, "input": call.args})
    if (result := message.result) is not None:
        about = {"tool_use_id": result.call_id, "is_error": result.is_error}
        content.append({"type": "tool_result", "content": result.text, **about})
    about = {"type": role, "uuid": message.id, "sessionId": session.info.id, "cwd": session.info.cwd}
    about |= {"timestamp": datetime.fromtimestamp(message.created_at, UTC).isoformat()}
    return msgspec.json.encode({**about, "message": {"role": role, "content": content}}) + b"\n"
