"""Whether a deny or ask rule applies to a command, however the command is wrapped; in doubt it does."""

import re
from collections.abc import Iterator, Sequence
from enum import IntEnum
from fnmatch import fnmatchcase
from functools import cache

from crushpy.core.access import Access
from crushpy.permissions.command_policy import why_not_literal
from crushpy.permissions.decision import Decision, by_rule
from crushpy.permissions.git_commands import is_git_command, is_known_git
from crushpy.permissions.program_table import facts, option_names
from crushpy.permissions.risky_words import STANDARD_INPUT, risky_words, runs_rest
from crushpy.permissions.rules import RUN, Rule, RuleSet
from crushpy.permissions.shell.ast import ShellReading, SimpleCommand, Word, with_inner
from crushpy.permissions.shell.line_reader import parse_shell
from crushpy.util.lazy_pattern import lazy_pattern

_LETTERS = {"--recursive": "r", "--archive": "r", "--force": "f"}
"""Other spellings of options."""
_ATTACHED_OPTION = lazy_pattern(r"^(?:--[\w-]+=?|-\w)")
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
    """Whether the rule applies to any command of the line."""
    if rule.pattern in ("", "*"):
        return RuleHit.YES
    found = RuleHit.NO
    for command in reading.commands:
        for words in _candidates(command, depth=0):
            found = max(found, _words_hit(rule.words, words), _code_hit(rule.words, words))
        for each in (each for each in with_inner(command) if each.inner):  # `sudo` of `sudo ls`
            found = max(found, _words_hit(rule.words, each.words))
        if command.stdin and mentions(rule.words, line) and any(map(_may_run_input, with_inner(command))):
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
        has_subcommand = facts(program).rule == "subcommand" and texts[1:2] and texts[1].isalpha()
        rest = texts[2 if has_subcommand else 1 :]
        code = " ".join(text for text in rest if "://" not in text)
        found = mentions(rule, code if program != "git" else f"git {code}") or (
            " " in program and mentions(rule, program)
        )
    reads_commands = facts(program).runs and len(words) in risky
    return RuleHit.MAYBE if found or reads_commands else RuleHit.NO


def _is_known(words: Sequence[Word]) -> bool:
    """Whether it runs only what its risky words name. Any other may run its words, and what it reads."""
    program = _program_name(words[0].text)
    return is_known_git(words) if program == "git" else facts(program).is_plain


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


def _inner_starts(command: SimpleCommand) -> Sequence[int]:
    """Where a command inside this one may begin."""
    words, program = command.words, command.program
    if runs := runs_rest(program, words):
        return list(runs)
    if not (facts(program).runs_risky or facts(program).interpreter):
        return ()
    risky = risky_words(command)
    known = [index for index in risky if index < len(words)]
    starts = [index for index in known if words[index].kind == "literal" or index - 1 in risky]
    return [index for index in starts if program != "git" or is_git_command(words, index)]


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
    options = [word.text.partition("=")[0] for word in words[1:] if word.is_option]
    present = {name for each in options for name in _option_names(program, each)}
    if option == "--" or set(_option_names(program, option)) <= present:
        return RuleHit.YES
    if option.startswith("--") and any(len(each) > 2 and option.startswith(each) for each in options):
        return RuleHit.YES
    return RuleHit.MAYBE if any(word.may_be_option for word in words[1:]) else RuleHit.NO


def _option_names(program: str, option: str) -> Iterator[str]:
    """The letters of an option or of a cluster, or a long option, in one spelling."""
    if option.startswith("--"):
        full = next((name for name in _LETTERS if len(option) > 2 and name.startswith(option)), option)
        yield _LETTERS.get(full, option)
    elif facts(program).single_dash:
        yield option
    else:
        recursive = option_names(facts(program).recursive)
        yield from ("r" if f"-{letter}" in recursive else letter for letter in option[1:])


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
