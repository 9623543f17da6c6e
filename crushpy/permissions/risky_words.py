"""Words that make a program write or execute: a rule covers them only if it spells them."""

import re
from collections.abc import Callable, Sequence

from crushpy.core.messages import Data
from crushpy.permissions.risky_options import PROGRAMS, Risk, Risks, git_risks, option_risks, option_value
from crushpy.permissions.shell.ast import SimpleCommand, Word, word_set
from crushpy.permissions.shell.wrappers import RUNNERS, RUNNING_SUBCOMMANDS

_HARMLESS = word_set("-V -v -VV --version --help -h")
_VERSIONED = re.compile(r"(python|pypy|perl|ruby|php|lua|node)[\d.]*")


STANDARD_INPUT = re.compile(r"-|/dev/stdin|/dev/fd/\d+|/proc/self/fd/\d+")


class Interpreter(Data, frozen=True):
    """How an interpreter is told what to run."""

    code: str
    """Letters of options whose value is the program."""
    valued: str = ""
    """Letters of other options with a value."""
    long: str = ""
    """Long options that give or load a program, separated by spaces."""
    ends: bool = False
    """True if all words after the program are its own."""
    no_script: tuple[str, ...] = ()
    """Options that keep it from reading a program from standard input."""
    stdin: str = ""
    """Letters of options that make it read one, whatever its operands."""


_SHELL = Interpreter("c", "oO", ends=True, stdin="s")
INTERPRETERS = {
    **dict.fromkeys(("python", "pypy"), Interpreter("cm", "WX", ends=True)),
    "node": Interpreter("ep", "rC", "eval print require import loader", no_script=("--test",)),
    "perl": Interpreter("eE"),
    "ruby": Interpreter("e", "rI"),
    "php": Interpreter("rBRE", "dzcft"),
    "lua": Interpreter("e", "l"),
    "Rscript": Interpreter("e"),
    "osascript": Interpreter("e", "l"),
    **dict.fromkeys(("sh", "bash", "dash", "zsh", "ksh", "ash"), _SHELL),
    "fish": Interpreter("c", "C", ends=True),
}


def is_interpreter(program: str) -> bool:
    return _family(program) in INTERPRETERS


def _family(program: str) -> str:
    """`python` for `python3.12`."""
    versioned = _VERSIONED.fullmatch(program)
    return versioned[1] if versioned else program


def interpreter_risks(program: str, words: Sequence[Word]) -> dict[int, str] | None:
    """The words that tell an interpreter what to run, by index; None if `program` is not an interpreter.

    The words after the script are the script's own. Without a script it runs what it reads: no rule
    can spell that.
    """
    interpreter = INTERPRETERS.get(_family(program))
    if interpreter is None:
        return None
    risks: dict[int, str] = {}
    has_code = False
    place = 1
    while place < len(words):
        word = words[place]
        if word.kind == "literal" and STANDARD_INPUT.fullmatch(word.text):
            break
        if not word.is_option and not (interpreter.stdin and word.text.startswith("+")):
            if not has_code:
                risks[place] = f"{program} executes it"
            return risks
        if word.text not in _HARMLESS:
            risks[place] = f"it tells {program} what to execute"
            if interpreter.stdin and re.match(rf"-\w*{interpreter.stdin}", word.text):
                break
            code = Risk(interpreter.code, "eval print", interpreter.valued)
            is_code = option_value(word.text, code) is not None
            has_code = has_code or is_code or word.text in interpreter.no_script
            if option_value(word.text, Risk(interpreter.code + interpreter.valued, interpreter.long)) == "":
                place += 1
                risks[place] = f"{program} executes it"
            if is_code and interpreter.ends:
                return risks
        place += 1
    if not has_code and (len(words) == 1 or place < len(words) or risks):
        risks[len(words)] = f"{program} executes what it reads"
    return risks


_TEXT = r"[^/\\\n\[]*+(?:\\.[^/\\\n\[]*+)*"
"""Text between slashes. A bracket could hide a slash, so there is none in it."""
_POINT = rf"(?:\d++|\$|/{_TEXT}/)"
_SED_COMMAND = rf"[ \t]*+(?:{_POINT}(?:,{_POINT})?)?(?:[pdq=]|s/{_TEXT}/{_TEXT}/[gpI0-9]*+)[ \t]*+"
_PLAIN_SED = re.compile(rf"{_SED_COMMAND}(?:;{_SED_COMMAND})*")
_AWK_STRING = r'"[^"\\{}\n]*+"'
_AWK_CONDITION = r"[\w$ ;=!<>&.+*%-]*+"
_AWK_PATTERN = rf"(?:[ ;]*+/{_TEXT}/ ?|{_AWK_CONDITION}(?:{_AWK_STRING}{_AWK_CONDITION})*)"
_AWK_STATEMENT = r"[\w$ ,;=+*%.-]*+"
_AWK_ACTION = rf"\{{{_AWK_STATEMENT}(?:{_AWK_STRING}{_AWK_STATEMENT})*\}}"
_PLAIN_AWK = re.compile(rf"(?!.*getline){_AWK_PATTERN}(?:{_AWK_ACTION}(?:{_AWK_PATTERN}{_AWK_ACTION})?)?")


def _script_risk(word: Word, harmless: object, what: str) -> str:
    """Why a script may write or execute; empty if it is literal and `harmless` is true."""
    if word.kind != "literal":
        return f"the {what} is known only to the shell"
    return "" if harmless else f"the {what} can write or execute"


_FIND_RUNS = frozenset(("-exec", "-execdir", "-ok", "-okdir"))
_FIND_WRITES = frozenset(("-delete", "-fprint", "-fprint0", "-fprintf", "-fls"))


def _find(words: Sequence[Word]) -> Risks:
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


def _uniq(words: Sequence[Word]) -> Risks:
    operands = [place for place, word in enumerate(words[1:], 1) if not word.is_option]
    several = [place for place in operands if words[place].kind != "literal"]
    return dict.fromkeys([*operands[1:], *several], "the second file is written to")


_SED_HARMLESS = re.compile(
    r"-[nErsuzb]+|--(?:quiet|silent|regexp-extended|posix|debug|null-data|separate|unbuffered|version|help)?"
)
_SED_SCRIPT = re.compile(r"-[nErsuzb]*e(.*)|--expression(?:=(.*))?", re.DOTALL)


def _sed(words: Sequence[Word]) -> Risks:
    """The values of `-e` are scripts; without one the first operand is."""
    risks: Risks = {}
    scripts: dict[int, Word] = {}
    operands: list[int] = []
    is_script = False
    for place, word in enumerate(words[1:], 1):
        given = _SED_SCRIPT.fullmatch(word.text) if word.is_option else None
        if is_script or (given and (given[1] or given[2])):
            scripts[place] = word if is_script or given is None else Word(given[1] or given[2])
            is_script = False
        elif given:
            is_script = True
        elif word.may_be_option or (word.is_option and not _SED_HARMLESS.fullmatch(word.text)):
            risks[place] = "with it sed can write or execute"
            if re.fullmatch(r"-\w*f|--f\w*", word.text):
                risks[place + 1] = "it is a sed script"
        elif not word.is_option:
            operands.append(place)
    if not scripts and operands:
        scripts[operands[0]] = words[operands[0]]
    found = {
        place: _script_risk(script, _PLAIN_SED.fullmatch(script.text), "sed script")
        for place, script in scripts.items()
    }
    return risks | {place: why for place, why in found.items() if why}


_AWK_HARMLESS = re.compile(
    r"-[Fv].*|--(?:field-separator|assign)(?:=.*)?|--(?:version|help|posix|csv|re-interval)|-h|-V"
)


def _awk(words: Sequence[Word]) -> Risks:
    risks: Risks = {}
    skip = False
    for place, word in enumerate(words[1:], 1):
        if skip:
            skip = False
        elif word.is_option and word.text != "--":
            if not _AWK_HARMLESS.fullmatch(word.text):
                risks[place] = "with it awk can write or execute"
            skip = word.text in ("-F", "-v", "--field-separator", "--assign")
        elif word.may_be_option:
            risks[place] = "it could be an option or a program"
        elif word.text != "--" or word.kind != "literal":
            if reason := _script_risk(word, _PLAIN_AWK.fullmatch(word.text), "awk program"):
                risks[place] = reason
            break
    return risks


def _extra_risk(program: str, words: Sequence[Word], place: int) -> str:
    """Why a word is risky that is not an option; empty if it is not."""
    word = words[place]
    match program:
        case "make" if word.kind != "literal" or (not word.is_option and "=" in word.text):
            return "it can set a variable that make executes"
        case "date" if not word.is_option and not (word.text.startswith("+") and word.kind == "literal"):
            valued = words[place - 1].text in ("-d", "-r", "-f", "--date", "--reference", "--file")
            return "" if valued else "it could set the clock"
        case "tar" if place == 1 and not word.is_option and set(word.text) & set(PROGRAMS["tar"].short):
            return "with it tar writes or executes"  # `tar xzf`: letters without a dash
        case "curl" if "output{" in word.text:
            return "it names a file"
        case _:
            return ""


def _pytest(words: Sequence[Word]) -> Risks:
    risks = option_risks(words, PROGRAMS["pytest"])
    for place, word in enumerate(words):
        harmless = word.text in _PYTEST_HARMLESS or _PYTEST_REPORT.fullmatch(word.text)
        if word.kind == "literal" and harmless:
            risks.pop(place, None)
            if word.text == "-p":
                risks.pop(place + 1, None)
    return risks


_PYTEST_HARMLESS = word_set("--co --cov --no-cov --lf --ff -pno:cacheprovider")
_PYTEST_REPORT = re.compile(r"--cov-report=(?:term(?:-missing)?(?::skip-covered)?)?|--cov=[\w./-]+")


SPECIAL: dict[str, Callable[[Sequence[Word]], Risks]] = {
    "git": git_risks,
    "find": _find,
    "uniq": _uniq,
    "xxd": _uniq,
    "sed": _sed,
    "awk": _awk,
    "pytest": _pytest,
}


ALIKE = {
    **dict.fromkeys(("gawk", "mawk", "nawk"), "awk"),
    **dict.fromkeys(("cc", "g++", "c++", "clang", "clang++"), "gcc"),
    **{"fdfind": "fd", "gmake": "make", "gsed": "sed", "py.test": "pytest", "basedpyright": "pyright"},
    **{"gradlew": "gradle", "mvnw": "mvn", "pip3": "pip"},
}
"""Programs under another name."""

OPERANDS_MATTER = word_set(
    "rm rmdir mv cp ln chmod chown chgrp install truncate shred dd mkdir touch kill pkill killall mkfs mount"
    " umount curl ssh scp sftp rsync nc ncat socat telnet crontab useradd usermod passwd"
    " split csplit unlink patch ed ex vi vim nvim emacs nano"
)
"""Their operands are what they change: a rule that names one file covers no other."""


def risky_words(command: SimpleCommand) -> Risks:
    """The risky words of a simple command, by index; one past the last if no rule could spell it."""
    words, program = command.words, ALIKE.get(command.program, command.program)
    if special := SPECIAL.get(program):
        return special(words)
    risks = interpreter_risks(program, words)
    if risks is not None:
        return risks | _module_risks(words)
    if runs := runs_rest(program, words):
        return runs
    risk = PROGRAMS.get(program)
    risks = option_risks(words, risk) if risk is not None else {}
    extra = {place: _extra_risk(program, words, place) for place in range(1, len(words))}
    return risks | {place: why for place, why in extra.items() if why}


def _module_risks(words: Sequence[Word]) -> Risks:
    """`python -m pytest` is pytest: the words after the module are its own."""
    texts = [word.text if word.kind == "literal" else "" for word in words]
    if "-m" not in texts or not texts[0].rpartition("/")[2].startswith(("python", "pypy")):
        return {}
    start = texts.index("-m") + 1
    inner = risky_words(SimpleCommand(tuple(words[start:]))) if start < len(words) else {}
    return {start + place: why for place, why in inner.items()}


def runs_rest(program: str, words: Sequence[Word]) -> Risks:
    """The words of a program that runs its operands, in a form that could not be unwrapped."""
    pairs = {(program,), (program, words[1].text if len(words) > 1 else "")}
    runs = program in RUNNERS or pairs & RUNNING_SUBCOMMANDS
    return dict.fromkeys(range(1, len(words)), f"{program} runs it") if runs else {}
