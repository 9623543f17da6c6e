"""Programs that carry a program in their words: interpreters, sed and awk."""

import re
from collections.abc import Sequence

from crushpy.core.messages import Data
from crushpy.permissions.shell.ast import Word, word_set

_HARMLESS = word_set("-V -v -VV --version --help -h")
_VERSIONED = re.compile(r"(python|pypy|perl|ruby|php|lua|node)[\d.]*")


class Interpreter(Data, frozen=True):
    """How an interpreter is told what to run."""

    code: str
    """Letters of options whose value is the program."""
    valued: str = ""
    """Letters of other options with a value."""
    long: tuple[str, ...] = ()
    """Long options that give or load a program."""
    ends: bool = False
    """True where all words after the program are its own."""
    no_script: tuple[str, ...] = ()
    """Options with which nothing is read from standard input."""


INTERPRETERS = {
    "python": Interpreter("cm", "WX", ends=True),
    "pypy": Interpreter("cm", "WX", ends=True),
    "node": Interpreter("ep", "rC", ("eval", "print", "require", "import", "loader"), no_script=("--test",)),
    "perl": Interpreter("eE"),
    "ruby": Interpreter("e", "rI"),
    "php": Interpreter("rBRE", "dzcft"),
    "lua": Interpreter("e", "l"),
    "Rscript": Interpreter("e"),
    "osascript": Interpreter("e", "l"),
    "sh": Interpreter("c", "oO", ends=True),
    "bash": Interpreter("c", "oO", ends=True),
    "dash": Interpreter("c", "o", ends=True),
    "zsh": Interpreter("c", "o", ends=True),
    "ksh": Interpreter("c", "o", ends=True),
    "fish": Interpreter("c", "C", ends=True),
}


def is_interpreter(program: str) -> bool:
    return _family(program) in INTERPRETERS


def _family(program: str) -> str:
    """`python` for `python3.12`."""
    versioned = _VERSIONED.fullmatch(program)
    return versioned[1] if versioned else program


def interpreter_risks(program: str, words: Sequence[Word]) -> dict[int, str] | None:
    """What an interpreter is told to run, by place; None where `program` is no interpreter.

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
        if word.kind == "literal" and word.text == "-":
            break
        if not word.is_option:
            if not has_code:
                risks[place] = f"{program} executes it"
            return risks
        if word.text not in _HARMLESS:
            risks[place] = f"it tells {program} what to execute"
            takes_value, is_code = _option(word.text, interpreter)
            has_code = has_code or is_code or word.text in interpreter.no_script
            if takes_value:
                place += 1
                risks[place] = f"{program} executes it"
            if is_code and interpreter.ends:
                return risks
        place += 1
    if not has_code and (len(words) == 1 or place < len(words) or risks):
        risks[len(words)] = f"{program} executes what it reads"
    return risks


def _option(text: str, interpreter: Interpreter) -> tuple[bool, bool]:
    """Whether the next word is this option's value, and whether it gives the program."""
    if text.startswith("--"):
        name, equals, _ = text[2:].partition("=")
        return name in interpreter.long and not equals, name in ("eval", "print")
    for place, letter in enumerate(text[1:], 2):
        if letter in interpreter.code:
            return place == len(text), True
        if letter in interpreter.valued:
            return place == len(text), False
    return False, False


# --- awk -------------------------------------------------------------------------------------------------


_AWK_STRING = r'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*("?+)'
"""Also one without an end, so that no quote inside it is looked at again."""


def _without_string(found: re.Match[str]) -> str:
    return '""' if found[1] else found[0]


def awk_risk(word: Word) -> str:
    """Why an awk program may write or execute, or nothing."""
    if word.kind != "literal":
        return "which awk program this is is not known"
    program = word.text
    if "system" in program or "@" in program:  # @ loads extensions and calls functions by name
        return "the awk program can execute"
    # A regular expression can hold a quote: only without one is it certain what is a string.
    bare = program if "/" in program else re.sub(_AWK_STRING, _without_string, program)
    if re.search(r"print.*>", bare, re.DOTALL) or "|" in bare.replace("||", ""):
        return "the awk program can write or execute"
    return ""


# --- sed -------------------------------------------------------------------------------------------------

# Each of these can be read in one way only, so that none is slow. Groups are not possessive: in Python
# before 3.11.5 such ones err.
_REGEX = r"/[^/\\\n\[]*+(?:\\.[^/\\\n\[]*+)*/[IM]*+"
_POINT = rf"(?:\d++(?:~\d++)?|\$|{_REGEX})"
_ADDRESS = re.compile(rf"(?:{_POINT}(?:[ \t]*+,[ \t]*+(?:{_POINT}|[+~]\d++))?)?[ \t]*+!?+[ \t]*+")
_END = re.compile(r"[ \t]*+(?=[;\n}]|\Z)")
_BETWEEN = re.compile(r"[;\s]*+")


def _substitution(delimiter: str) -> str:
    """`s` and `y` with this delimiter. A bracket that could hide the delimiter does not match."""
    end = re.escape(delimiter)
    plain = rf"[^{end}\\\n\[]*+"
    in_bracket = rf"[^{end}\]\\\n]*+"
    bracket = rf"\[\^?+\]?+{in_bracket}(?:\\[a-zA-Z]{in_bracket})*\]"
    pattern = rf"{plain}(?:(?:\\.|{bracket}){plain})*"
    text = rf"[^{end}\\\n]*+(?:\\.[^{end}\\\n]*+)*"
    return rf"s{end}{pattern}{end}{text}{end}[gpiImM0-9]*+|y{end}{text}{end}{text}{end}"


_COMMAND = re.compile(
    "|".join(
        (
            *(_substitution(delimiter) for delimiter in "/|#,:@!%_+"),
            r"[pdDnNgGhHxlz=]",
            r"[qQ][ \t]*+\d*+",
            r"[aic][^\n\\]*+(?=\n|\Z)",
            r"[btT:][ \t]*+[\w.-]*+",
            r"#[^\n]*+(?=\n|\Z)",
            r"[{}]",
        )
    )
)


def sed_risk(word: Word) -> str:
    """Why a sed script may write or execute, or nothing. Whatever is not plainly harmless may."""
    if word.kind != "literal":
        return "which sed script this is is not known"
    text, place = word.text, 0
    while (place := _match(_BETWEEN, text, place)) < len(text):
        start = _match(_ADDRESS, text, place)
        place = _match(_COMMAND, text, start)
        if place > start and text[start] != "{":
            place = _match(_END, text, place)
        if place < 0 or place == start:
            return "the sed script can write or execute"
    return ""


def _match(pattern: re.Pattern[str], text: str, place: int) -> int:
    """Where the match at `place` ends; -1 for none."""
    found = pattern.match(text, place) if place >= 0 else None
    return found.end() if found else -1
