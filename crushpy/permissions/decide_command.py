"""The decision for a shell command: every simple command in it, every redirection, every variable."""

import re
from collections.abc import Sequence
from pathlib import Path

from crushpy.access import Access
from crushpy.permissions.allowance import cd_target, covered_by
from crushpy.permissions.decide_path import decide_path
from crushpy.permissions.decision import Decision, by_rule
from crushpy.permissions.prohibition import RuleHit, hits, mentions
from crushpy.permissions.risk.risky_words import risky_words
from crushpy.permissions.rules import READ, RUN, WRITE, Rule, RuleSet
from crushpy.permissions.shell.ast import Redirect, ShellReading, SimpleCommand, with_inner
from crushpy.permissions.shell.obeyed_variables import is_obeyed
from crushpy.permissions.shell.parser import parse_shell
from crushpy.permissions.suggestions import suggest_rule

_HARMLESS_FILES = re.compile(r"/dev/(?:null|stdin|stdout|stderr|fd/\d+)")
_MOVES = frozenset(("cd", "pushd", "popd"))


def decide_command(access: Access, rules: RuleSet, workspace: Path, *, yolo: bool) -> list[Decision]:
    """One decision for each thing that the command would do."""
    reading = parse_shell(access.value)
    parts = _forbidden(access, reading, rules, yolo)
    if reading.unreadable:
        parts.append(Decision("ask", f"the command cannot be judged: {reading.unreadable}"))
    parts.extend(_variables(reading))
    for redirect in reading.redirects:
        parts.extend(_redirect(redirect, reading, rules, workspace))
    parts.extend(_commands(reading.commands, rules, workspace, access.tool))
    return parts or [Decision("ask", "no rule covers it")]


def _forbidden(access: Access, reading: ShellReading, rules: RuleSet, yolo: bool) -> list[Decision]:
    """What deny and ask rules say. Where a command cannot be read, under yolo its text decides."""
    found: list[Decision] = []
    for rule in rules.deny:
        if rule.tool not in (RUN, access.tool):
            continue
        hit = _hit(rule, reading)
        in_doubt = hit == RuleHit.MAYBE or bool(reading.unreadable) or bool(_variables(reading))
        if hit == RuleHit.YES:
            found.append(by_rule("deny", rule))
        elif in_doubt and yolo and mentions(rule.words, access.value):
            found.append(Decision("deny", f"the rule {rule} may deny it, and nobody is asked"))
        elif hit == RuleHit.MAYBE:
            found.append(Decision("ask", f"the rule {rule} may deny it"))
    for rule in rules.ask:
        if rule.tool in (RUN, access.tool) and _hit(rule, reading) != RuleHit.NO:
            found.append(by_rule("ask", rule))
    return found


def _hit(rule: Rule, reading: ShellReading) -> RuleHit:
    return RuleHit.YES if rule.pattern in ("", "*") else hits(rule.words, reading)


def _variables(reading: ShellReading) -> list[Decision]:
    inner = [each for command in reading.commands for each in with_inner(command)]
    assigned = [*reading.variables, *(variable for command in inner for variable in command.variables)]
    names = dict.fromkeys(variable.name for variable in assigned if is_obeyed(variable))
    return [Decision("ask", f"setting {name} can change what is executed") for name in names]


def _redirect(redirect: Redirect, reading: ShellReading, rules: RuleSet, workspace: Path) -> list[Decision]:
    word = redirect.target
    if word.kind == "unknown" and word.head == "/dev/fd/":
        return []  # a process substitution: its commands are judged by themselves
    if word.kind == "literal" and _HARMLESS_FILES.fullmatch(word.text):
        return []
    text = f"{Path.home()}{word.text[1:]}" if word.text.startswith("~/") else word.text
    spelled = word.kind == "literal" or (text != word.text and not re.search(r"[*?\[{]", text))
    if not spelled or not text or text.startswith(("/dev/tcp/", "/dev/udp/")):
        return [Decision("ask", f"where the redirection to {word.text} goes cannot be judged")]
    folders = [workspace] if text.startswith("/") else _folders(reading, workspace)
    if not folders:
        return [Decision("ask", f"from which folder {word.text} is meant cannot be judged")]
    tool = WRITE if redirect.writes else READ
    return [
        decide_path(Access(tool, "path", str(folder / text), redirect.writes), rules, workspace)
        for folder in folders
    ]


def _folders(reading: ShellReading, workspace: Path) -> list[Path]:
    """The folders in which a command of this line may run; none where that is not known."""
    moves = [
        each for command in reading.commands for each in with_inner(command) if each.words[0].text in _MOVES
    ]
    if not moves:
        return [workspace]
    target = cd_target(moves[0], workspace) if moves[0].words[0].text == "cd" else None
    if len(moves) > 1 or reading.loops or target is None:
        return []
    return [workspace, target]


def _commands(
    commands: Sequence[SimpleCommand], rules: RuleSet, workspace: Path, tool: str
) -> list[Decision]:
    allow = {rule.words: rule for rule in rules.allow if rule.tool in (RUN, tool)}
    words = list(allow)
    parts: list[Decision] = []
    for command in commands:
        rule = covered_by(words, command, workspace)
        if rule is None:
            parts.extend(_uncovered(command, words, workspace))
        elif rule:
            parts.append(by_rule("allow", allow[tuple(rule)]))
    if not parts and commands:
        # Nothing but steps that need no rule beside others: alone, they ask like any command.
        parts.extend(_ask(command) for command in commands)
    return parts


def _uncovered(command: SimpleCommand, rules: Sequence[Sequence[str]], workspace: Path) -> list[Decision]:
    if not (command.inner and command.transparent):
        return [_ask(command)]
    inner = [each for each in command.inner if covered_by(rules, each, workspace) is None]
    return [part for each in inner for part in _uncovered(each, rules, workspace)]


def _ask(command: SimpleCommand) -> Decision:
    rule = suggest_rule(command)
    risks = {} if command.inner else risky_words(command)
    known = [(command.words[place].text, why) for place, why in risks.items() if place < len(command.words)]
    shown = str(command)[:200]
    if known:
        reason = f"no rule spells `{known[0][0][:60]}` in `{shown}`: {known[0][1]}"
    elif risks:
        reason = f"no rule can cover `{shown}`: {next(iter(risks.values()))}"
    else:
        reason = f"no rule covers `{shown}`"
    return Decision("ask", reason, (rule,) if rule else ())
