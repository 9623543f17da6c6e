"""What an allow rule lets through, run by a real bash among canaries: only the allowed program executes.

The variables hold what bash would run if it looked twice. Whatever bash finds nowhere is written down.
"""

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from crushpy.core.access import Access
from crushpy.permissions.decide import decide
from crushpy.permissions.rules import RuleSet

pytestmark = pytest.mark.slow

BASH = shutil.which("bash")
RULES = RuleSet.from_strings(allow=("bash(show)", "write(out/**)"))
HANDLER = """() {  printf '%s\\n' "$*" > "$RAN/$BASHPID"; }"""
HELD = {
    "x": "a[$(pwn)]",
    "y": "-v a[$(pwn)]",
    "z": "w -o -v a[`pwn`]",
    "u": "b[$(pwn)]",
    "v": "$(pwn)",
    "w": "x",
}
OPERATORS = """
:- :-w -w :+w +w % %%w #w ##w /w/v //w ^ ^^ , ,, :1 :1:2 :x :=w @ * [@] [*] [x] @P @Q @A @a @K
"""
OPERATORS = ("", "", "", *OPERATORS.split())
CALCULATED = ("RANDOM", "SECONDS", "OPTIND", "HISTCMD", "SRANDOM", "LINENO", "BASHPID")
"""Variables that are numbers to bash."""
TESTS = ("-n", "-z", "-f", "-v", "-R", "!", "=", "==", "!=", "-eq", "-lt", "-a", "-o")
GRAMMAR = {
    "line": (
        *("{call}",) * 16,
        *("{call}; {line}", "{call} && {line}", "{call} | {line}", "{call}\n{line}", "! {call}", "({line})"),
        *("{name}={word}; {line}", "{name}={word} {call}", "export {name}={word}; {line}", "{{ {line}; }}"),
        *(
            "declare -{letter} {name}={word}; {line}",
            "{name}=({word} {word}); {line}",
            "unset {word}; {line}",
        ),
        *("for {name} in {word} {word}; do {line}; done", "if {test}; then {line}; fi", "{test} && {line}"),
        *("while {test}; do {line}; break; done", "case {word} in {word}) {line};; esac"),
        *("read -r {name} <<< {word}; {line}", "read {word} <<< w; {line}", "printf -v {word} w; {line}"),
        *("bash -c '{plain}'", "env {name}=w {call}", "time {call}", "set -u; {line}", "wait {word}; {line}"),
    ),
    "call": (
        *("show {word}",) * 8,
        *(
            "show",
            "show {word} {word}",
            "show <<< {word}",
            "show <<E\n{word} {inside}\nE",
            "show <<'E'\n{word}\nE",
        ),
        *("show > out/{plain}", "show > {word}", "show {word} 2>&1", "show < {word}", "{word} {word}"),
    ),
    "test": (
        *("[ {word} ]", "[ {operator} {word} ]", "[ {word} {operator} {word} ]", "test {operator} {word}"),
        *("[[ {word} ]]", "[[ {operator} {word} ]]", "[[ {word} {operator} {word} ]]", "test {word}"),
    ),
    "word": (
        *(
            "{plain}",
            "{expansion}",
            "{expansion}",
            '"{inside}"',
            '"{inside} {inside}"',
            "'$(pwn)'",
            "$'{plain}'",
        ),
        *("{plain}{expansion}", "$(show {word})", "`show {plain}`", "<(show {plain})", "{{{plain},{plain}}}"),
        *("{expansion}", "$(({sum}))", "*", "~", "\\$(pwn)"),
    ),
    "inside": (
        "{plain}",
        "{expansion}",
        "{expansion}",
        "$(show {plain})",
        "\\$(pwn)",
        "$(({sum}))",
        "\\`pwn\\`",
    ),
    "expansion": (
        *(
            "${name}",
            "${{{name}{suffix}}}",
            "${{{special}{suffix}}}",
            *("${{!{name}{suffix}}}",) * 4,
            "${{#{name}}}",
            "$#",
            "$!",
            "${{!#}}",
            "$@",
        ),
        *(
            "${{{name}:-{expansion}}}",
            '${{{name}:-"{inside}"}}',
            "${{{name}/{expansion}/w}}",
            "${{{name}:={plain}}}",
        ),
    ),
    "sum": ("1", "1", "1 + 2", "{name}", "${name}", "a[{name}]", "{expansion}"),
    "plain": ("w", "v.txt", "a", "-n", "w=1", "-v"),
    "name": ("x", "x", "x", "u", *HELD, *CALCULATED),
    "special": ("@", "*", "#", "?", "$", "-", "1"),
    "suffix": OPERATORS,
    "operator": TESTS,
    "letter": ("x", "r", "n", "i", "a", "A", "g"),
}


def written(chance: random.Random, kind: str, depth: int = 0) -> str:
    """A text of this kind; from a certain depth on a plain one."""
    if depth > 6 and kind in ("line", "call", "word", "inside", "expansion", "test"):
        return {"line": "show", "call": "show", "test": "[ w ]"}.get(kind, "w")
    made, rest = "", chance.choice(GRAMMAR[kind])
    while rest:
        before, brace, rest = rest.partition("{")
        made += before.replace("}}", "}")
        if not brace:
            break
        if rest.startswith("{"):
            made, rest = made + "{", rest[1:]
            continue
        inner, _, rest = rest.partition("}")
        made += written(chance, inner, depth + 1)
    return made


def harm_done(command: str, folder: Path) -> list[str]:
    """What ran, and what appeared, beside the allowed program and the allowed folder."""
    ran, work, programs = (folder / name for name in ("ran", "work", "programs"))
    for each in (ran, work / "out", programs):
        each.mkdir(parents=True)
    (programs / "bash").symlink_to(str(BASH))
    for name in ("env", "time"):  # inside a pipeline `time` is a program: one that runs its words will do
        (programs / name).symlink_to(str(shutil.which("env")))
    (programs / "show").symlink_to(str(shutil.which("true")))
    process = subprocess.Popen(
        [str(BASH), "-c", f"{command}\nwait"],
        env={
            "PATH": str(programs),
            "HOME": str(folder / "home"),
            "LC_ALL": "C.UTF-8",
            "RAN": str(ran),
            "BASH_FUNC_command_not_found_handle%%": HANDLER,
            **HELD,
        },
        cwd=work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        process.wait(timeout=30)
    finally:
        process.kill()
        process.wait()
    return [
        *(each.read_text() for each in ran.iterdir()),
        *(each for each in os.listdir(work) if each != "out"),
    ]


@pytest.mark.skipif(BASH is None, reason="needs bash")
@pytest.mark.parametrize("seed", range(3))
def test_an_allowed_command_runs_nothing_but_the_allowed_program(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    executed = 0
    for number in range(300):
        command = written(chance, "line")
        access = Access("bash", "command", command, writes=True)
        if decide([access], RULES, tmp_path / str(number) / "work").verdict == "allow":
            executed += 1
            assert harm_done(command, tmp_path / str(number)) == [], command
    assert executed > 30
