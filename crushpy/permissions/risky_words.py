"""Words that make a program write or execute: a rule covers them only if it spells them."""

import re
from collections.abc import Sequence

from crushpy.permissions.git_commands import git_risks
from crushpy.permissions.option_risks import Risks, option_risks
from crushpy.permissions.options import read_arguments
from crushpy.permissions.program_table import Program, facts, family, option_names
from crushpy.permissions.shell.ast import SimpleCommand, Word

STANDARD_INPUT = re.compile(r"-|/dev/stdin|/dev/fd/\d+|/proc/self/fd/\d+")


def _interpreter_risks(words: Sequence[Word], row: Program, program: str) -> Risks:
    """The words that tell an interpreter what to run.

    The words after the script are the script's own. Without a script it runs what it reads: no rule
    can spell that.
    """
    risks: Risks = {}
    has_code = prints_version = False
    for argument in read_arguments(words, row):
        text = argument.word.text
        is_toggle = row.stdin and text.startswith("+")
        if argument.word.kind == "literal" and STANDARD_INPUT.fullmatch(text):
            has_code = prints_version = False
            break
        if argument.is_value:
            risks[argument.index] = f"{program} executes it"
        elif not argument.names and not is_toggle:
            return risks if has_code else risks | {argument.index: f"{program} executes it"}
        elif set(argument.names) <= option_names(row.flags) and argument.names:
            prints_version = True
        else:
            risks[argument.index] = f"it tells {program} what to execute"
            if row.stdin and re.match(rf"-\w*{row.stdin}", text):
                has_code = prints_version = False
                break
            has_code = has_code or argument.has(row.script) or text == row.no_script
        if row.ends and has_code and not argument.awaits_value(row.script):
            return risks
    return risks if has_code or prints_version else risks | {len(words): f"{program} executes what it reads"}


_TEXT = r"[^/\\\n\[]*+(?:\\.[^/\\\n\[]*+)*"
"""Text between slashes. A bracket could hide a slash, so there is none in it."""
_POINT = rf"(?:\d++|\$|/{_TEXT}/)"
_SED_COMMAND = rf"[ \t]*+(?:{_POINT}(?:,{_POINT})?)?(?:[pdq=]|s/{_TEXT}/{_TEXT}/[gpI0-9]*+)[ \t]*+"
_AWK_STRING = r'"[^"\\{}\n]*+"'
_AWK_CONDITION = r"[\w$ ;=!<>&.+*%-]*+"
_AWK_PATTERN = rf"(?:[ ;]*+/{_TEXT}/ ?|{_AWK_CONDITION}(?:{_AWK_STRING}{_AWK_CONDITION})*)"
_AWK_STATEMENT = r"[\w$ ,;=+*%.-]*+"
_AWK_ACTION = rf"\{{{_AWK_STATEMENT}(?:{_AWK_STRING}{_AWK_STATEMENT})*\}}"
_PLAIN_SCRIPTS = {
    "sed": rf"{_SED_COMMAND}(?:;{_SED_COMMAND})*",
    "awk": rf"(?!.*getline){_AWK_PATTERN}(?:{_AWK_ACTION}(?:{_AWK_PATTERN}{_AWK_ACTION})?)?",
}
"""Scripts that write and execute nothing, by program. They are compiled if there is a script."""


def _script_risks(words: Sequence[Word], row: Program, program: str) -> Risks:
    """The values of `script` options are scripts; without one the first operand is."""
    risks = option_risks(words, row, program)
    known = option_names(f"{row.flags} {row.values} {row.script} {row.risky}")
    scripts: dict[int, Word] = {}
    operands: list[int] = []
    is_script = from_file = False
    for argument in read_arguments(words, row):
        index, word = argument.index, argument.word
        from_file = from_file or argument.has(row.inputs)
        if (argument.is_option and not argument.names) or not set(argument.names) <= known:
            risks[index] = f"with it {program} can write or execute"
        if is_script:
            scripts[index] = word
        elif argument.has(row.script) and argument.value:
            scripts[index] = Word(argument.value)
        if argument.is_operand:
            operands.append(index)
        is_script = argument.awaits_value(row.script)
    if not scripts and not from_file and operands:
        scripts[operands[0]] = words[operands[0]]
    for index, script in scripts.items():
        if script.kind != "literal":
            risks[index] = f"the {program} script is known only to the shell"
        elif not re.fullmatch(_PLAIN_SCRIPTS[program], script.text):
            risks[index] = f"the {program} script can write or execute"
    return risks


_FIND_RUNS = frozenset(("-exec", "-execdir", "-ok", "-okdir"))
_FIND_WRITES = frozenset(("-delete", "-fprint", "-fprint0", "-fprintf", "-fls"))


def _find_risks(words: Sequence[Word]) -> Risks:
    risks: Risks = {}
    running = False
    for place, word in enumerate(words[1:], 1):
        if running:
            risks[place] = "find runs it"
            running = word.text not in (";", "+")
        elif word.kind != "literal":
            if word.may_be_option:
                risks[place] = "it could be an action that deletes or executes"
        elif word.text in _FIND_RUNS:
            running = True
            risks[place] = "with it find executes"
        elif word.text in _FIND_WRITES:
            risks[place] = "with it find deletes or writes"
            if word.text != "-delete":
                risks[place + 1] = "find writes to it"
    return risks


def risky_words(command: SimpleCommand) -> Risks:
    """The risky words of a simple command, by index; one past the last if no rule could spell it."""
    words, program = command.words, command.program
    row, name = facts(program), family(program)
    match name:
        case "git":
            return git_risks(words)
        case "find":
            return _find_risks(words)
        case "sed" | "awk":
            return _script_risks(words, row, name)
        case _ if row.interpreter:
            return _interpreter_risks(words, row, program) | (_module_risks(words) if row.modules else {})
        case _:
            return runs_rest(program, words) or option_risks(words, row, name)


def _module_risks(words: Sequence[Word]) -> Risks:
    """`python -m pytest` is pytest: the words after the module are its own."""
    texts = [word.text if word.kind == "literal" else "" for word in words]
    start = texts.index("-m") + 1 if "-m" in texts else len(words)
    inner = risky_words(SimpleCommand(tuple(words[start:]))) if start < len(words) else {}
    return {start + place: why for place, why in inner.items()}


def runs_rest(program: str, words: Sequence[Word]) -> Risks:
    """The words of a program that runs its operands, in a form that could not be unwrapped."""
    runs = facts(program).runs or (len(words) > 1 and facts(program, words[1].text).runs)
    return dict.fromkeys(range(1, len(words)), f"{program} runs it") if runs else {}
