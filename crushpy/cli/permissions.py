"""`crushpy permissions`: lists, tests and revokes rules; `trust` and `untrust`: what a project may bring."""

import shlex
from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from crushpy.cli.arguments import COMMANDS
from crushpy.cli.command_helpers import (
    AsJson,
    add_group,
    argument,
    format_table,
    open_store,
    option,
    print_either,
    print_lines,
)
from crushpy.cli.workspace import environment_here, load_here, print_warning, working_folder
from crushpy.core.access import Access, Mode
from crushpy.core.errors import UsageError
from crushpy.core.paths import Paths, project_root
from crushpy.permissions.consents import Consent, all_consents, remove_consents
from crushpy.permissions.trust import add_trusted, list_project_files, remove_trusted
from crushpy.security.sanitize import clean
from crushpy.settings.save import remove_rule

EXIT_CODES = {"allow": 0, "deny": 1, "ask": 3}


def register(app: typer.Typer) -> None:
    commands = {"list": list_rules, "test": test_command, "revoke": revoke_command}
    add_group(app, "permissions", commands, dashes="test")
    app.command("trust", help=COMMANDS["trust"])(trust_command)
    app.command("untrust", help=COMMANDS["untrust"])(untrust_command)


async def list_rules(as_json: AsJson = False) -> None:
    """List the rules in effect in this folder with their files, and the grants of conversations."""
    loaded = load_here()
    async with open_store() as store:  # a missing database is not created
        tips = await store.sessions.list_tips(str(working_folder())) if store.location.exists else []
    granted = [info for info in tips if info.grants]
    grants = [{"session": info.id, "title": info.title, "rules": info.grants} for info in granted]
    groups = {  # in order of precedence
        f"{kind}:": [(clean(rule.rule), clean(rule.origin)) for rule in loaded.rules if rule.kind == kind]
        for kind in ("deny", "ask", "allow")
    }
    for info in granted:
        groups[f"granted in {info.id} ({clean(info.title)}):"] = [(clean(rule), "") for rule in info.grants]
    lines: list[str] = []
    for title, rows in groups.items():
        lines += [title, *(f"  {line}" for line in format_table(rows))] if rows else []
    none = ["No rules: reading in the workspace is allowed, everything else asks."]
    print_either(as_json, {"rules": loaded.rules, "grants": grants}, lines or none)


def test_command(
    tool: Annotated[str, argument("bash, write, view, fetch, ...")],
    argument: Annotated[str, argument("The command, the path, or the host or URL.")] = "",
    allow: Annotated[list[str] | None, option("--allow", "Assume this rule.", metavar="RULE")] = None,
    yolo: Annotated[bool, option("--yolo", "Assume --yolo.")] = False,
    mode: Annotated[Mode | None, option("--mode", "Assume this mode.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the decision about a call. Exit code: 0 it may run, 3 it would ask, 1 it is denied."""
    from crushpy.permissions.decide import decide
    from crushpy.permissions.rules import in_mode
    from crushpy.tools.registry import tool_table

    cwd, project = working_folder(), environment_here()
    for warning in project.loaded.warnings:
        print_warning(warning)
    rules = in_mode(mode or project.settings.permissions.mode, project.rules(tool_table(), allow or ()))
    decision = decide([_describe_access(tool, argument, cwd)], rules, cwd, yolo=yolo, guard=project.guard())
    lines = [f"{decision.verdict}: {clean(decision.reason)}"]
    lines += [f"  owner of the rule: {decision.owner}"] if decision.owner else []
    lines += [f"  --allow {shlex.quote(clean(rule))}" for rule in decision.suggested]
    fields = ("verdict", "reason", "suggested", "owner")
    print_either(as_json, {name: getattr(decision, name) for name in fields}, lines)
    raise typer.Exit(EXIT_CODES[decision.verdict])


async def revoke_command(
    rule: Annotated[str, argument("A rule from `crushpy permissions list`.")],
    session: Annotated[str, option("--session", "Revoke a grant of this conversation.", metavar="ID")] = "",
) -> None:
    """Remove a rule from your settings, or a grant from a conversation."""
    if session:
        async with open_store() as store:
            info = await store.sessions.find_tip(session)
            if rule.strip() not in info.grants:
                hint = "`crushpy permissions list` shows the grants."
                raise UsageError(f"{rule} is not granted in {session}.", hint)
            remaining = tuple(each for each in info.grants if each != rule.strip())
            await store.sessions.update(info.id, grants=remaining)
        print(f"{rule} is revoked in {session}.")
        return
    files = remove_rule(Paths(), rule, working_folder())
    for file in files:
        print(f"{rule} is removed from {file}.")
    remaining_origins = [each.origin for each in load_here().rules if each.rule == rule.strip()]
    if remaining_origins:
        raise UsageError(f"{rule} is still in {', '.join(remaining_origins)}.", "Remove it there.")
    if not files:
        hint = "`crushpy permissions list` shows the rules; --session ID revokes a grant of a conversation."
        raise UsageError(f"There is no rule {rule}.", hint)


def _describe_access(tool: str, argument: str, cwd: Path) -> Access:
    from crushpy.tools.registry import tool_table

    tools = tool_table()
    if tool not in tools:
        raise UsageError(f"There is no tool {tool!r}.", f"Known tools: {', '.join(tools)}.")
    declaration = tools[tool]
    value = argument or declaration.default
    if declaration.kind != "none" and not value:
        example = {"command": '"git log"', "host": "example.com"}.get(declaration.kind, "src/a.py")
        raise UsageError(f"{tool} needs an argument.", f"Example: crushpy permissions test {tool} {example}")
    if declaration.kind == "host" and "://" in value:
        from urllib.parse import urlsplit

        value = urlsplit(value).hostname or value
    if declaration.kind == "path":
        path = Path(value).expanduser() if value.startswith("~") else Path(value)
        value = str(cwd / path)
    return Access(tool, declaration.kind, value if declaration.kind != "none" else "", declaration.writes)


ProjectPath = Annotated[
    Path | None,
    argument("A folder of the project. [default: the current one]"),
]


def trust_command(
    path: ProjectPath = None,
    show_list: Annotated[bool, option("--list", "List all that you have accepted.")] = False,
    revoke: Annotated[str, option("--revoke", "Take back one of the list.", metavar="ID")] = "",
    as_json: Annotated[bool, option("--json", "With --list: print JSON.")] = False,
) -> None:
    from crushpy.extensions.hooks.hook_config import accept_hooks

    paths = Paths()
    if show_list:
        found = all_consents(paths)
        rows = [_consent_row(consent) for consent in found]
        records = [{"id": each.id, **msgspec.to_builtins(each)} for each in found]
        print_either(as_json, records, format_table(rows) if rows else ["Nothing has been accepted."])
        return
    if revoke:
        removed = remove_consents(paths, lambda each: each.id == revoke)
        if not removed:
            raise UsageError(f"There is no consent {clean(revoke)}.", "`crushpy trust --list` shows them.")
        print_lines([f"Revoked: {'  '.join(_consent_row(removed[0]))}"])
        return
    root = add_trusted(paths, find_root(path))
    used = [f"  {line}" for line in (*list_project_files(root), *accept_hooks(paths, root))]
    print_lines([f"{clean(str(root))} is trusted. crushpy now uses:", *used, "To undo: crushpy untrust"])


def _consent_row(consent: Consent) -> tuple[str, ...]:
    day = datetime.fromtimestamp(consent.when).astimezone().strftime("%Y-%m-%d %H:%M")
    what = f"{consent.kind} {consent.name}".strip()
    return tuple(map(clean, (consent.id, what, consent.where or "your settings", consent.who, day)))


def find_root(path: Path | None) -> Path:
    """The root of the project around `path` or the current folder."""
    try:
        folder = (path or working_folder()).resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise UsageError(f"{path} does not exist.", "Give an existing folder.") from error
    return project_root(folder)


def untrust_command(path: ProjectPath = None) -> None:
    paths = Paths()
    # The folder of a deleted project need not exist.
    folder = (path or working_folder()).resolve()
    for root in (folder, project_root(folder)):
        if remove_trusted(paths, root):
            print(f"{clean(str(root))} is no longer trusted: what it brings is ignored.")
            return
    raise UsageError(f"{clean(str(folder))} is not trusted.", "`crushpy trust --list` shows those that are.")
