"""What bash really runs is what was read: broken and mended commands, run by a bash that finds no program.

Its PATH is empty and what it does not find is written down, so that nothing but builtins is executed.
"""

import contextlib
import os
import random
import re
import select
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from crushpy.permissions.shell.ast import Word, with_inner
from crushpy.permissions.shell.parser import parse_shell

from . import table

BASH = shutil.which("bash")
PIECES = """
a b c -c ; & && || | |& ( ) { } ' " \\ $ $( ` # ! = a= ~ * ? [ ] [[ ]] {a,b} < > >> &> >& 2> << <<A <<<
<( >( $' ${ ${a:- $(( )) (( if then fi for do done while case esac time 1 3> {a}> -- @ $a "$a" "$@" \\; == =~
-eq bash env command \\" \\' \\$ \\`
"""
PIECES = [*PIECES.split(), " ", " ", "\n", "\t", "\\\n", "\nA\n", " #", "; then ", "; do ", ";; "]
HANDLER = """() {  printf '%s\\037' "$@" > "$RAN/$BASHPID"; }"""
UNWANTED = re.compile(r"\(\s*\)|\b(?:function|coproc|kill|exit|exec|ulimit|suspend)\b|/")


def fits(ran: list[str], words: list[Word]) -> bool:
    """Whether the words that were read may turn into those that ran."""
    if not words:
        return not ran
    if words[0].kind == "literal":
        return bool(ran) and ran[0] == words[0].text and fits(ran[1:], words[1:])
    return any(fits(ran[taken:], words[1:]) for taken in range(len(ran) + 1))


def commands(seed: int, count: int) -> list[str]:
    chance = random.Random(seed)
    corpus = [re.findall(r"\w+|\s+|.", command, re.DOTALL) for command in (*table.ALLOWED, *table.ASKED)]
    made: list[str] = []
    while len(made) < count:
        pieces = list(chance.choice(corpus))
        if chance.random() < 0.4:
            pieces += [chance.choice([" ", ";", "|", "\n", ""]), *chance.choice(corpus)]
        for _ in range(chance.choice([0, 1, 1, 2, 3])):
            place = chance.randrange(len(pieces) + 1)
            if chance.random() < 0.6:
                pieces.insert(place, chance.choice(PIECES))
            elif place < len(pieces):
                del pieces[place]
        command = "".join(pieces)
        # `time -x` runs a program called -x; read as an option of time, it is never covered.
        if not UNWANTED.search(command) and not re.search(r"(?:time|command)\s+-", command):
            made.append(command)
    return made


def run(command: str, folder: Path, ran: Path, empty: Path) -> bool:
    """Whether the command and all it started came to an end; a process substitution may outlive the shell."""
    ended, held = os.pipe()
    process = subprocess.Popen(
        [str(BASH), "-c", f"{command}\nwait" if "&" in command else command],
        env={
            "PATH": str(empty),
            "HOME": str(empty / "none"),
            "LC_ALL": "C.UTF-8",
            "RAN": str(ran),
            "BASH_FUNC_command_not_found_handle%%": HANDLER,
        },
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=[held],
        start_new_session=True,
    )
    os.close(held)
    try:
        all_ended = bool(select.select([ended], [], [], 10)[0])
    finally:
        os.close(ended)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return all_ended


@pytest.mark.skipif(BASH is None, reason="needs bash")
@pytest.mark.parametrize("seed", range(4))
def test_bash_runs_nothing_and_writes_nothing_that_was_not_read(seed: int, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    executed = 0
    for number, command in enumerate(commands(seed, 250)):
        reading = parse_shell(command)
        if reading.unreadable:
            continue
        ran, folder = tmp_path / f"ran{number}", tmp_path / f"in{number}"
        folder.mkdir()
        ran.mkdir()
        if not run(command, folder, ran, tmp_path / "empty"):
            continue  # a loop without end: what it ran so far is not complete
        found = [each for each_command in reading.commands for each in with_inner(each_command)]
        for record in ran.iterdir():
            executed += 1
            words = record.read_text(errors="replace").split("\x1f")[:-1]
            assert any(fits(words, list(each.words)) for each in found), (command, words)
        written = [each.target for each in reading.redirects if each.writes]
        for file in folder.iterdir():
            assert any(file.name == each.text or each.kind != "literal" for each in written), (
                command,
                file.name,
            )
    assert executed > 50
