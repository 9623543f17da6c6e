"""`crushpy permissions`: the rules in force, a trial of them, and taking one back."""

import sys
from pathlib import Path
from typing import Annotated

import typer

EXIT_CODES = {"allow": 0, "ask": 3, "deny": 1}


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="List, test and revoke permission rules.")
    group.command("list")(list_rules)
    group.command("test")(test_rule)
    group.command("revoke")(revoke)
    app.add_typer(group, name="permissions")


def list_rules(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Print every rule with where it comes from."""
    from crushpy.bootstrap import Surroundings

    rules = Surroundings(Path.cwd()).loaded.rules
    if as_json:
        import msgspec

        print(msgspec.json.encode(rules).decode())
        return
    if not rules:
        print("There are no rules: reading inside the project is free, everything else asks.")
    for kind in ("deny", "ask", "allow"):
        for rule in rules:
            if rule.kind == kind:
                print(f"{kind:<6} {rule.rule}  ({rule.origin})")


def test_rule(
    tool: Annotated[str, typer.Argument(help="bash, write, fetch, ...")],
    argument: Annotated[str, typer.Argument(help="The command, path or host.")] = "",
    allow: Annotated[
        list[str] | None, typer.Option("--allow", metavar="RULE", help="With this rule too.")
    ] = None,
    yolo: Annotated[bool, typer.Option("--yolo", help="As with --yolo.")] = False,
) -> None:
    """Say what would happen to a call. Exit code: 0 allowed, 3 asked, 1 denied."""
    from crushpy.access import Access
    from crushpy.bootstrap import Surroundings
    from crushpy.errors import UsageError
    from crushpy.permissions.decide import decide
    from crushpy.permissions.rules import RuleSet
    from crushpy.tools.registry import all_tools

    known = [one.name for one in all_tools()]
    if tool not in known:
        raise UsageError(f"There is no tool named {tool!r}.", f"There are: {', '.join(known)}.")
    around = Surroundings(Path.cwd())
    chosen = around.settings.permissions
    rules = RuleSet.from_strings(allow=(*chosen.allow, *(allow or ())), ask=chosen.ask, deny=chosen.deny)
    writes = tool in ("edit", "multiedit", "write", "bash", "fetch")
    match tool:
        case "bash":
            access = Access(tool, "command", argument, writes)
        case "fetch":
            access = Access(tool, "host", argument, writes)
        case "todos" | "recall" | "new_session" | "job_output" | "job_kill":
            access = Access(tool, "none")
        case _:
            access = Access(tool, "path", str((around.cwd / Path(argument).expanduser()).resolve()), writes)
    decision = decide((access,), rules, around.cwd, yolo=yolo)
    print(f"{decision.verdict}: {decision.reason}")
    for rule in decision.suggested:
        print(f"  would be allowed by: {rule}")
    raise typer.Exit(EXIT_CODES[decision.verdict])


def revoke(rule: Annotated[str, typer.Argument(help="As `crushpy permissions list` prints it.")]) -> None:
    """Take a stored rule back."""
    from crushpy.errors import UsageError
    from crushpy.paths import Paths
    from crushpy.settings import remove_rule

    files = remove_rule(Paths(), rule)
    if not files:
        raise UsageError(f"No stored rule is {rule!r}.", "`crushpy permissions list` shows them.")
    for file in files:
        print(f"Revoked in {file}", file=sys.stdout)
