"""Whether a deny or ask rule applies to a command, however the command is wrapped; in doubt it does."""

import re
from collections.abc import Iterator, Sequence
from enum import IntEnum
from fnmatch import fnmatchcase
from functools import cache

from crushpy.core.access import Access
from crushpy.permissions.allow_rules import SUBCOMMAND_PROGRAMS
from crushpy.permissions.command_policy import why_not_literal
from crushpy.permissions.decision import Decision, by_rule
from crushpy.permissions.read_only_commands import PLAIN_PROGRAMS
from crushpy.permissions.risky_options import is_known_git
from crushpy.permissions.risky_words import STANDARD_INPUT, risky_words
from crushpy.permissions.rules import RUN, Rule, RuleSet
from crushpy.permissions.shell.ast import ShellReading, SimpleCommand, Word, with_inner, word_set
from crushpy.permissions.shell.line_reader import parse_shell
from crushpy.permissions.shell.wrappers import RUNNERS, RUNNING_SUBCOMMANDS

_RUNNING_OPTIONS = {
    "find": ("-exec", "-execdir", "-ok", "-okdir"),
    "fd": ("-x", "-X", "--ex"),
    "fdfind": ("-x", "-X", "--ex"),
}
_KNOWN_PROGRAMS = PLAIN_PROGRAMS | {"man"}
"""Programs that run nothing but what their risky words name, if they have any. Every other program may run
any of its words, and what it reads."""
_SINGLE_DASH = word_set("find go java terraform openssl ffmpeg convert gcc clang")
"""Programs whose long options have one dash: `-delete` is not five letters."""
_SYNONYMS = {
    "rm": (word_set("r R --recursive"), word_set("f --force")),
    "cp": (word_set("r R a --recursive --archive"),),
    "chmod": (word_set("R --recursive"),),
    "chown": (word_set("R --recursive"),),
    "git": (word_set("f --force"),),
}


_ATTACHED_OPTION = re.compile(r"^(?:--[\w-]+=?|-\w)")
"""The option before a command that is glued to it: `env -S'rm x'`, `fd -xrm`."""


class RuleHit(IntEnum):
    """How certain it is that a rule applies to a command."""

    NO = 0
    MAYBE = 1
    YES = 2


def deny_decisions(access: Access, reading: ShellReading, rules: RuleSet) -> list[Decision]:
    """The decisions of deny and ask rules. In doubt a deny rule asks, under yolo too."""
    found: list[Decision] = []
    for rule in rules.deny:
        if rule.tool not in (RUN, access.tool):
            continue
        hit = _rule_hit(rule, reading, access.value)
        if hit == RuleHit.YES or (reading.broken and mentions(rule.words, access.value)):
            found.append(by_rule("deny", rule))
        elif hit == RuleHit.MAYBE or reading.not_literal:
            why = why_not_literal(reading) or "it depends on words that are not known yet"
            found.append(Decision("ask", f"the rule {rule} may deny it: {why}", even_yolo=True))
    for rule in rules.ask:
        if rule.tool in (RUN, access.tool) and (
            reading.not_literal or _rule_hit(rule, reading, access.value)
        ):
            found.append(by_rule("ask", rule))
    return found


def _rule_hit(rule: Rule, reading: ShellReading, line: str) -> RuleHit:
    return RuleHit.YES if rule.pattern in ("", "*") else hits(rule.words, reading, line)


def hits(rule: Sequence[str], reading: ShellReading, line: str) -> RuleHit:
    """Whether the rule applies to any command of the line."""
    found = RuleHit.NO
    for command in reading.commands:
        for words in _candidates(command, depth=0):
            found = max(found, _words_hit(rule, words), _code_hit(rule, words))
        if command.stdin and mentions(rule, line) and any(map(_may_run_input, with_inner(command))):
            found = max(found, RuleHit.MAYBE)
    return found


def _code_hit(rule: Sequence[str], words: tuple[Word, ...]) -> RuleHit:
    """Whether a program is given code that names the denied one, or is a shell that reads its input."""
    program = _program_name(words[0].text)
    risky = risky_words(SimpleCommand(words))
    texts = [_ATTACHED_OPTION.sub("", word.text) for word in words]
    if _is_known(words):
        # A bare word after no option is a name, such as that of a branch.
        values = (
            index
            for index in risky
            if index < len(words)
            and (words[index].is_option or words[index - 1].is_option or re.search(r"\s", texts[index]))
        )
        found = any(mentions(rule, f"{program} {texts[index]}") for index in values)
    else:
        has_subcommand = program in SUBCOMMAND_PROGRAMS and texts[1:2] and texts[1].isalpha()
        rest = texts[2 if has_subcommand else 1 :]
        code = " ".join(text for text in rest if "://" not in text)
        found = mentions(rule, code if program != "git" else f"git {code}") or (
            " " in program and mentions(rule, program)
        )
    reads_commands = program in RUNNERS and len(words) in risky
    return RuleHit.MAYBE if found or reads_commands else RuleHit.NO


def _is_known(words: Sequence[Word]) -> bool:
    program = _program_name(words[0].text)
    return is_known_git(words) if program == "git" else program in _KNOWN_PROGRAMS


def _may_run_input(command: SimpleCommand) -> bool:
    """Whether a command may run what it reads."""
    words = command.words
    inputs = (words[index].text for index in risky_words(command) if index < len(words))
    return not command.inner and (not _is_known(words) or any(map(STANDARD_INPUT.fullmatch, inputs)))


def mentions(rule: Sequence[str], text: str) -> bool:
    """True if all words of the rule occur in `text`, quotes aside. For lines that cannot be parsed."""
    wanted = (
        [_program_name(rule[0]), *(word for word in rule[1:] if not word.startswith("-"))] if rule else []
    )
    plain = re.sub(r"\\\n|['\"\\]", "", text)
    return all(re.search(rf"(?<![\w.-]){re.escape(word)}(?![\w./-])", plain) for word in wanted)


def _candidates(command: SimpleCommand, depth: int) -> Iterator[tuple[Word, ...]]:
    """Every sequence of words that this command may end up running."""
    for each in (each for each in with_inner(command) if not each.inner):
        words = each.words
        yield words
        for start in _inner_starts(each):
            word = words[start]
            if not word.is_option:
                yield words[start:]
            if depth < 3 and word.kind == "literal" and re.search(r"\s", word.text):
                for inner in parse_shell(word.text).commands:
                    yield from _candidates(inner, depth + 1)
            if depth < 3 and word.is_option and (attached := _ATTACHED_OPTION.sub("", word.text)):
                for inner in parse_shell(attached).commands:
                    yield from _candidates(inner, depth + 1)


def _inner_starts(command: SimpleCommand) -> range:
    """Where a command inside this one may begin."""
    words = command.words
    second = words[1].text if len(words) > 1 else ""
    if command.program in RUNNERS or {(command.program, second), (command.program,)} & RUNNING_SUBCOMMANDS:
        return range(1, len(words))
    texts = [word.text for word in words]
    for index, text in enumerate(texts):
        runs = _RUNNING_OPTIONS.get(command.program, ())
        before = texts[1:index] if command.program == "git" else ()
        git_runs = (
            ("rebase" in before and text.startswith(("-x", "--ex")))
            or ("bisect" in before and text == "run")
            or ("submodule" in before and text == "foreach")
            or ("filter-branch" in before and text.endswith("-filter"))
        )
        if (runs and text.startswith(runs)) or git_runs:
            return range(index, len(words))
        if text == "-m" and command.program.startswith(("python", "pypy")):
            return range(index + 1, len(words))
    return range(0)


def _words_hit(rule: Sequence[str], words: Sequence[Word]) -> RuleHit:
    if words[0].kind == "unknown":
        return RuleHit.MAYBE
    program = _program_name(rule[0])
    if words[0].kind == "pattern" and _operand_hit(program, Word(_program_name(words[0].text), "pattern")):
        return RuleHit.MAYBE
    if program != _program_name(words[0].text):
        return RuleHit.NO
    operands: list[str] = []
    certainty = RuleHit.YES
    for index, word in enumerate(rule[1:], 1):
        if word.startswith("-") and "--" not in rule[1:index]:
            certainty = min(certainty, _has_option(program, word, words))
        else:
            operands.append(word)
    return min(certainty, _operands_hit(operands, words)) if certainty else RuleHit.NO


def _has_option(program: str, option: str, words: Sequence[Word]) -> RuleHit:
    if option == "--":
        return RuleHit.YES
    long_names = {option}
    letters: set[str] = set() if option.startswith("--") or program in _SINGLE_DASH else set(option[1:])
    present_letters: set[str] = set()
    for word in words[1:]:
        if not word.is_option:
            continue
        name = word.text.partition("=")[0]
        if option in (word.text, name) or (
            len(name) > 2 and option.startswith("--") and option.startswith(name)
        ):
            return RuleHit.YES
        if name.startswith("--"):
            long_names.add(name)
        else:
            present_letters |= set(name[1:])
    present = present_letters | {name for name in long_names if name != option}
    wanted = letters or {option}
    if (letters or program in _SYNONYMS) and all(_is_given(program, each, present) for each in wanted):
        return RuleHit.YES
    return RuleHit.MAYBE if any(word.may_be_option for word in words[1:]) else RuleHit.NO


def _is_given(program: str, option: str, present: set[str]) -> bool:
    """Whether an option is given, by one of its names or an abbreviation."""
    names = next((names for names in _SYNONYMS.get(program, ()) if option in names), frozenset((option,)))
    return any(
        name in present or any(len(each) > 2 and name.startswith(each) for each in present) for name in names
    )


def _operands_hit(operands: Sequence[str], words: Sequence[Word]) -> RuleHit:
    """Whether the rule's operands are the command's first ones. A word after an option may be its value."""

    @cache
    def match(wanted: int, index: int) -> RuleHit:
        if wanted == len(operands):
            return RuleHit.YES
        if index == len(words):
            return RuleHit.NO
        word = words[index]
        if word.is_option:
            return match(wanted, index + 1)
        if word.kind == "unknown":
            return RuleHit.MAYBE
        found = min(_operand_hit(operands[wanted], word), match(wanted + 1, index + 1))
        if words[index - 1].is_option:
            found = max(found, match(wanted, index + 1))
        return found

    return match(0, 1)


def _operand_hit(operand: str, word: Word) -> RuleHit:
    if word.kind == "literal":
        return RuleHit.YES if word.text == operand else RuleHit.NO
    if word.text == operand:
        return RuleHit.YES
    may_match = "{" in word.text or word.text.startswith("~") or fnmatchcase(operand, word.text)
    return RuleHit.MAYBE if may_match else RuleHit.NO


def _program_name(program: str) -> str:
    return program.rpartition("/")[2]
