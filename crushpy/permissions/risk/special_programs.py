"""Programs whose risky words are found in ways of their own: find, sed, awk, tar, make and others."""

import re
from collections.abc import Callable, Sequence

from crushpy.permissions.risk.embedded_scripts import awk_risk, sed_risk
from crushpy.permissions.risk.git_words import git_risks
from crushpy.permissions.risk.risky_options import PROGRAMS, Risks, is_long, option_risks
from crushpy.permissions.shell.ast import Word, word_set

_FIND_RUNS = frozenset(("-exec", "-execdir", "-ok", "-okdir"))
_FIND_WRITES = frozenset(("-delete", "-fprint", "-fprint0", "-fprintf", "-fls"))
_FIND_VALUED = word_set(
    "-name -iname -path -ipath -wholename -iwholename -regex -iregex -lname -ilname -type -xtype -newer"
    " -mtime -mmin -atime -amin -ctime -cmin -size -maxdepth -mindepth -perm -user -group -printf"
    " -samefile -links"
)


def _find(words: Sequence[Word]) -> Risks:
    risks: Risks = {}
    running = False
    for place, word in enumerate(words[1:], 1):
        before = words[place - 1]
        if running:
            risks[place] = "find runs it"
            running = word.text not in (";", "+")
        elif word.kind != "literal":
            one_value = before.text in _FIND_VALUED and before.kind == "literal"
            if word.may_be_option and (word.kind == "pattern" or word.splits or not one_value):
                risks[place] = "it could turn out to be an action that deletes or executes"
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
    several = [place for place in operands if words[place].kind == "pattern" or words[place].splits]
    return dict.fromkeys([*operands[1:], *several], "the second file is written to")


def _sed(words: Sequence[Word]) -> Risks:
    risks: Risks = {}
    has_script = False
    value_of = ""
    for place, word in enumerate(words[1:], 1):
        text = word.text
        if value_of:
            if value_of == "e" and (reason := sed_risk(word)):
                risks[place] = reason
            elif value_of == "f":
                risks[place] = "it is a sed script"
            value_of = ""
        elif word.may_be_option or (word.kind != "literal" and not has_script):
            risks[place] = "it could turn out to be an option or a script that writes or executes"
            has_script = True
        elif word.is_option:
            value_of, spelled, reason = _sed_option(text)
            has_script = has_script or spelled
            if reason:
                risks[place] = reason
        elif not has_script:
            has_script = True
            if reason := sed_risk(word):
                risks[place] = reason
    return risks


def _sed_option(text: str) -> tuple[str, bool, str]:
    """Whose value comes next (e, f, l or nothing), whether this gives the script, and why it is risky."""
    if text.startswith("--"):
        name, equals, value = text[2:].partition("=")
        if is_long(name, ("in-place", "file")):
            return (
                "f" if name.startswith("f") and not equals else "",
                name.startswith("f"),
                "with it sed writes",
            )
        if name and "expression".startswith(name):
            return ("", True, sed_risk(Word(value))) if equals else ("e", True, "")
        return "", False, ""
    for place, letter in enumerate(text[1:], 2):
        rest = text[place:]
        if letter == "i":
            return "", False, "with it sed writes"
        if letter == "f":
            return "" if rest else "f", True, "it brings a sed script"
        if letter == "e":
            return ("", True, sed_risk(Word(rest))) if rest else ("e", True, "")
        if letter == "l":
            return "" if rest else "l", False, ""
    return "", False, ""


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
            risks[place] = "it could turn out to be an option or a program"
        elif word.text != "--" or word.kind != "literal":
            if reason := awk_risk(word):
                risks[place] = reason
            break
    return risks


def _make(words: Sequence[Word]) -> Risks:
    risks = option_risks(words, PROGRAMS["make"])
    for place, word in enumerate(words[1:], 1):
        if word.kind != "literal" or (not word.is_option and "=" in word.text):
            risks[place] = "it can set a variable that make executes"
    return risks


def _date(words: Sequence[Word]) -> Risks:
    risks = option_risks(words, PROGRAMS["date"])
    for place, word in enumerate(words[1:], 1):
        valued = words[place - 1].text in ("-d", "-r", "-f", "--date", "--reference", "--file")
        if not word.is_option and not valued and not (word.text.startswith("+") and word.kind == "literal"):
            risks[place] = "it could set the clock"
    return risks


def _tar(words: Sequence[Word]) -> Risks:
    risks = option_risks(words, PROGRAMS["tar"])
    if len(words) > 1 and not words[1].is_option and set(words[1].text) & set("xcruAIFTg"):
        risks[1] = "with it tar writes or executes"  # `tar xzf`: letters without a dash
    return risks


def _curl(words: Sequence[Word]) -> Risks:
    writes = {place: "it names a file" for place, word in enumerate(words) if "output{" in word.text}
    return option_risks(words, PROGRAMS["curl"]) | writes


def _read_builtin(words: Sequence[Word]) -> Risks:
    return {
        place: "it sets a variable that other programs obey"
        for place, word in enumerate(words[1:], 1)
        if not word.is_option and (word.kind != "literal" or not re.fullmatch(r"[a-z_][a-z0-9_]*", word.text))
    }


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

_ONE_DASH = {
    "go": word_set(
        "exec toolexec vettool overlay modfile o C c coverprofile cpuprofile memprofile blockprofile"
        " mutexprofile trace outputdir gcflags ldflags asmflags gccgoflags pkgdir"
    ),
    "gcc": word_set("o wrapper specs fplugin B save-temps dumpdir dumpbase"),
}
_GLUED = {"gcc": ("-o", "-B", "-fplugin", "-specs", "@"), "go": ()}


def _one_dash(program: str) -> Callable[[Sequence[Word]], Risks]:
    """Programs whose long options have one dash, and may have two."""

    def risks_of(words: Sequence[Word]) -> Risks:
        risks: Risks = {}
        for place, word in enumerate(words[1:], 1):
            name, equals, _ = word.text.lstrip("-").partition("=")
            if word.may_be_option:
                risks[place] = "it could turn out to be an option that writes or executes"
            elif (word.is_option and name in _ONE_DASH[program]) or word.text.startswith(_GLUED[program]):
                risks[place] = f"with it {program} can write or execute"
                if name in _ONE_DASH[program] and not equals and place + 1 < len(words):
                    risks[place + 1] = f"it is what {word.text} stands for"
        return risks

    return risks_of


SPECIAL: dict[str, Callable[[Sequence[Word]], Risks]] = {
    "git": git_risks,
    "find": _find,
    "uniq": _uniq,
    "xxd": _uniq,
    "sed": _sed,
    "awk": _awk,
    "make": _make,
    "date": _date,
    "curl": _curl,
    "tar": _tar,
    "read": _read_builtin,
    "pytest": _pytest,
    "go": _one_dash("go"),
    "gcc": _one_dash("gcc"),
}
