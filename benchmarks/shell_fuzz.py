"""Compares what rules decide about shell lines with what bash does.

`python -m benchmarks.shell_fuzz --lines N` generates lines from bash's grammar: every parameter, operator,
quote and compound command, nested, and then damaged. Lines that rules let run are run by a bash that finds
only programs that record how they were called. An escape is a program or a file that was not read, that no
allow rule covers, or that is denied. Each escape is made as short as possible before it is printed; the exit
code is 1 if there was one. Several processes work at once. The score is printed
meanwhile, and also when it is stopped.
"""

import argparse
import contextlib
import os
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from multiprocessing import Pool
from pathlib import Path

from crushpy.core.access import Access
from crushpy.permissions.decide import decide
from crushpy.permissions.decision import ExecutionContext
from crushpy.permissions.rules import RuleSet
from crushpy.permissions.shell.ast import Word, with_inner
from crushpy.permissions.shell.line_reader import parse_shell
from crushpy.tools.registry import tool_table

ALLOWED, FREE, DENIED = "ok", "other", "bad"
"""Programs: covered by the allow rule, without a rule, and denied."""
MISSPELT = {"time", "cmp", "comm", "head", "nl", "od", "tail", "tr"}
"""`time`, which stands before a program, and programs that only read: a damaged line may spell them by
chance. They need no rule."""
VARIABLES = ("x", "y", "arr", "HOME", "PWD", "PATH", "IFS", "RANDOM", "SECONDS", "LINENO", "PS4", "BASH_ENV")
SPECIAL = ("@", "*", "#", "?", "-", "$", "!", "_", "0", "1", "9", "10")
OPERATORS = (
    *("", ":-", "-", ":=", "=", ":?", "?", ":+", "+", "#", "##", "%", "%%", "/", "//", "/#", "/%", "^", "^^"),
    *(",", ",,", "~", "~~", ":", "::", ": -", "@P", "@Q", "@E", "@A", "@a", "@U", "@K"),
)
REDIRECTS = (
    ">",
    ">>",
    "<",
    ">|",
    "<>",
    "&>",
    "&>>",
    ">&",
    "<&",
    "2>",
    "2>>",
    "10>",
    "1234>",
    "{x}>",
    "<<<",
    "3<",
)
SEPARATORS = (
    ";",
    " ; ",
    "\n",
    " && ",
    " || ",
    " | ",
    " |& ",
    " & ",
    "&",
    "|",
    "&&",
    ";;",
    " \\\n",
    " # c\n",
    "",
)
PIECES = (
    *(
        "a",
        ";",
        "&",
        "|",
        "(",
        ")",
        "{",
        "}",
        "'",
        '"',
        "\\",
        "$",
        "`",
        "#",
        "!",
        "=",
        "~",
        "*",
        "?",
        "[",
        "]",
    ),
    *("<", ">", ",", "..", "-", ":", "@", "%", "^", "+", "/", "0", "1"),
    *(
        "$(",
        "${",
        "$((",
        "$[",
        "((",
        "))",
        "[[",
        "]]",
        "<(",
        ">(",
        "<<",
        "<<<",
        "$'",
        '$"',
        "\\\n",
        "\n",
        " ",
        "\t",
    ),
    *(
        "A\n",
        "\nA\n",
        "if ",
        "then ",
        "fi",
        "for ",
        "do ",
        "done",
        "case ",
        "esac",
        "in ",
        "time ",
        "coproc ",
    ),
    *(
        "eval ",
        "exec ",
        "command ",
        "builtin ",
        "source ",
        ". ",
        "export ",
        "test -v ",
        "printf -v ",
        "read ",
        "let ",
    ),
    *("alias ", "trap ", "set -", "shopt -s ", "\r", "\u00a0", "\x01", "é"),
)
PREFIXES = ("command", "time", "env", "CI=1", "LC_ALL=C", "xargs", "bash -c", "sudo", "builtin", "!", "eval")
UNWANTED = re.compile(r"\b(?:kill|ulimit|suspend|exit|logout|fg|bg)\b|/(?!dev/null)")
"""What would end or leave the shell instead of running something."""


class LineGenerator:
    """Random shell lines, from harmless ones to damaged programs."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def line(self) -> str:
        chance = self._random.random()
        text = self._list(3, literal=chance < 0.55)
        if chance < 0.35 or chance > 0.75:
            text = self._damaged(text)
        return text

    def _pick(self, *values: str) -> str:
        return self._random.choice(values)

    def _damaged(self, text: str) -> str:
        for _ in range(self._random.choice((1, 1, 1, 2, 3))):
            place = self._random.randrange(len(text) + 1)
            end = place + self._random.choice((0, 0, 0, 1, 2, 5))
            text = text[:place] + self._random.choice((*PIECES, "", "", "bad y")) + text[end:]
        return text

    def _list(self, depth: int, *, literal: bool = False) -> str:
        parts = [self._command(depth, literal)]
        while self._random.random() < 0.4:
            parts += [self._pick(*SEPARATORS), self._command(depth, literal)]
        return "".join(parts)

    def _command(self, depth: int, literal: bool) -> str:
        if not literal and depth > 0 and self._random.random() < 0.3:
            return self._compound(depth - 1)
        if not literal and self._random.random() < 0.25:
            return f"{self._assignment(depth)}{self._pick(' ', '; ')}{self._simple(depth, literal)}"
        return self._simple(depth, literal)

    def _simple(self, depth: int, literal: bool) -> str:
        name = self._pick(ALLOWED, ALLOWED, ALLOWED, FREE, DENIED, self._quoted(DENIED), ":", "test", "[")
        words = [name, *(self._word(depth, literal) for _ in range(self._random.randrange(4)))]
        if self._random.random() < 0.1:
            prefix = (
                "command",
                "time",
                "env",
                "CI=1",
                "LC_ALL=C",
                "xargs",
                "bash -c",
                "sudo",
                "builtin",
                "!",
                "eval",
            )
            words.insert(0, self._pick(*prefix))
        if self._random.random() < 0.25:
            place = self._random.randrange(len(words) + 1)
            words.insert(place, self._pick(*REDIRECTS) + self._pick("", " ") + self._target(depth, literal))
        if self._random.random() < 0.12:
            words.append(self._heredoc(depth))
        return self._pick(" ", " ", "  ", "\t").join(words)

    def _target(self, depth: int, literal: bool) -> str:
        return self._pick("f", "'g h'", "/dev/null", "1", "-", "2-", self._word(depth, literal))

    def _heredoc(self, depth: int) -> str:
        mark = self._pick("A", "'A'", '"A"', "\\A", "$A", "A'B'")
        body = self._pick(
            "text", "it's", "bad y", f"$({DENIED} y)", f"`{DENIED} y`", "${x:y}", "\\", " A", "A\\"
        )
        end = self._pick("A", "A", "A", " A", "\tA", "A ", "AB", "")
        operator = self._pick("<<", "<<", "<<-", "<< ")
        after = self._simple(depth - 1, False) if depth > 0 else ""
        return f"{operator}{mark}\n{body}\n{end}\n{after}"

    def _quoted(self, text: str) -> str:
        middle = len(text) // 2
        return self._pick(
            *(f"'{text}'", f'"{text}"', f"\\{text}", f"{text[:middle]}''{text[middle:]}", f"$'{text}'"),
            *(
                f"{text[:-1]}?",
                f"{{{text},x}}",
                f"{text[:middle]}\\\n{text[middle:]}",
                f"{text[:middle]}${{u}}{text[middle:]}",
            ),
        )

    def _word(self, depth: int, literal: bool) -> str:
        pieces = [self._literal_piece()]
        while self._random.random() < 0.35:
            expands = not literal and depth > 0 and self._random.random() < 0.5
            pieces.append(self._expansion(depth - 1) if expands else self._literal_piece())
        word = "".join(pieces)
        return f'"{word}"' if self._random.random() < 0.1 else word

    def _literal_piece(self) -> str:
        return self._pick(
            *(
                "a",
                "b1",
                "-c",
                "--x=y",
                "'q r'",
                '"s t"',
                "\\ ",
                "\\\\",
                "*",
                "?z",
                "[ab]",
                "{a,b}",
                "{1..3}",
                "~",
                "~/k",
            ),
            *(
                "=",
                "a=b",
                "%",
                "^",
                "!",
                "#",
                "@",
                "''",
                '""',
                "'$x'",
                "'`bad`'",
                '"\\$x"',
                '"a$"',
                "a$",
                "{}",
                "HEAD@{1}",
            ),
            *(
                "'a[$(bad y)]'",
                "-v",
                "é",
                "x=~",
                "+(a)",
                "]",
                "\\\n",
                "'\n'",
                '"\\\n"',
                "bad",
                "'bad y'",
                "1",
                "--",
                "-p",
            ),
        )

    def _assignment(self, depth: int) -> str:
        name = self._pick(*VARIABLES, "arr[0]", f"arr[$({DENIED} y)]", "CI", "LC_ALL")
        value = self._pick("1", "", f"'a[$({DENIED} y)]'", f"({DENIED} y)", self._word(depth, False))
        builtin = self._pick("", "", "export ", "declare -i ", "local ", "readonly ", "typeset ")
        return f"{builtin}{name}{self._pick('=', '=', '+=')}{value}"

    def _expansion(self, depth: int) -> str:
        inner = self._list(max(depth, 0)) if depth > 0 else f"{DENIED} y"
        parameter = self._pick(
            *VARIABLES,
            *SPECIAL,
            "arr[0]",
            "arr[@]",
            "arr[x]",
            f"arr[$({DENIED} y)]",
            "!x",
            "#x",
            "!x@",
            "!arr[@]",
        )
        argument = self._pick("", "x", "1", "a[$(bad y)]", f"$({DENIED} y)", self._word(max(depth, 0), False))
        return self._pick(
            *(
                f"$({inner})",
                f"`{inner}`",
                f"<({inner})",
                f">({inner})",
                f"$(({argument}))",
                f"$[{argument}]",
            ),
            *(f"${{{parameter}{self._pick(*OPERATORS)}{argument}}}", f"${self._pick(*VARIABLES, *SPECIAL)}"),
            *(
                f"${{{parameter}{self._pick(*OPERATORS)}{argument}}}",
                f'"${{{parameter}{self._pick(*OPERATORS)}{argument}}}"',
            ),
            *(
                f'"$({inner})"',
                f'"`{inner}`"',
                f"$'{argument}'",
                f'$"{argument}"',
                f"${{ {inner}; }}",
                f"${{|{inner}; }}",
            ),
            f"\"$(cat <<'A'\n{self._pick('text', 'it' + chr(39) + 's', 'A ', '$(bad y)', ')')}\nA\n)\"",
        )

    def _compound(self, depth: int) -> str:
        body = self._list(depth)
        test = self._pick(
            f"x -eq {self._word(depth, False)}", f"-v {self._word(depth, False)}", self._word(depth, False)
        )
        return self._pick(
            *(
                f"({body})",
                f"{{ {body}; }}",
                f"! {body}",
                f"if {body}; then {body}; fi",
                f"while {body}; do break; done",
            ),
            *(
                f"until {body}; do break; done",
                f"for x in {self._word(depth, False)}; do {body}; done",
                f"(({test}))",
            ),
            *(
                f"for ((x={self._word(depth, False)};x<0;x++)); do {body}; done",
                f"[[ {test} ]]",
                f"[ {test} ]",
            ),
            *(
                f"case {self._word(depth, False)} in *) {body};; esac",
                f"fun() {{ {body}; }}; fun",
                f"time {body}",
            ),
            *(
                f"coproc {body}",
                f"eval '{body}'",
                f"trap '{body}' EXIT",
                f"select x in a; do {body}; done",
                f"test {test}",
            ),
            *(
                f"bash -c '{body}'",
                f"alias ok='{DENIED} y'\nok",
                f"let 'x={self._word(depth, False)}'",
                f"function fun {{ {body}; }}",
            ),
        )


RECORD = """printf '%s\\037' "${0##*/}" "$@" > "$RAN/$BASHPID.$RANDOM"; exit 0"""
HANDLER = """() {  printf '%s\\037' "$@" > "$RAN/$BASHPID.$RANDOM$RANDOM"; }"""
WRAPPERS = ("env", "xargs", "bash", "sh", "cat")


class Bash:
    """Runs lines in a bash that finds only recording programs and a few wrappers."""

    def __init__(self, folder: Path, timeout_seconds: float = 10) -> None:
        self._folder = folder
        self._timeout_seconds = timeout_seconds
        self._program = str(shutil.which("bash"))
        self._bin = folder / "bin"
        self._bin.mkdir(exist_ok=True)
        for name in (ALLOWED, FREE, DENIED):
            script = self._bin / name
            script.write_text(f"#!{self._program}\n{RECORD}\n")
            script.chmod(0o755)
        for name in WRAPPERS:
            if found := shutil.which(name):
                with contextlib.suppress(FileExistsError):
                    (self._bin / name).symlink_to(found)

    def run(self, line: str) -> tuple[list[list[str]], list[str]] | None:
        """The commands and the files; None if the line did not end."""
        with tempfile.TemporaryDirectory(dir=self._folder) as name:
            ran, workspace = Path(name, "ran"), Path(name, "in")
            ran.mkdir()
            workspace.mkdir()
            if not self._end(line, ran, workspace):
                return None
            commands = [each.read_text(errors="replace").split("\x1f")[:-1] for each in ran.iterdir()]
            return commands, [each.name for each in workspace.iterdir()]

    def _end(self, line: str, ran: Path, workspace: Path) -> bool:
        ended, held = os.pipe()
        environment = {
            "PATH": str(self._bin),
            "HOME": str(self._bin),
            "LC_ALL": "C.UTF-8",
            "RAN": str(ran),
            "BASH_FUNC_command_not_found_handle%%": HANDLER,
        }
        process = subprocess.Popen(
            [self._program, "-c", f"{line}\nwait" if "&" in line else line],
            env=environment,
            cwd=workspace,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[held],
            start_new_session=True,
        )
        os.close(held)
        try:
            return bool(select.select([ended], [], [], self._timeout_seconds)[0])
        finally:
            os.close(ended)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@lru_cache(maxsize=1)
def _rule_sets() -> dict[str, RuleSet]:
    tools = tool_table()
    return {
        "allow": RuleSet.from_strings(allow=[f"bash({ALLOWED})", "write(./**)"], tools=tools),
        "yolo": RuleSet.from_strings(deny=[f"bash({DENIED})"], tools=tools),
        "plan": RuleSet(),
    }


def runs_under(line: str, workspace: Path) -> frozenset[str]:
    """The rule sets under which the line runs without a question: `allow`, `yolo`, `plan` and `literal`."""
    access = (Access("bash", "command", line, writes=True),)
    guard = ExecutionContext()
    found = {
        name
        for name, rules in _rule_sets().items()
        if decide(access, rules, workspace, yolo=name == "yolo", guard=guard).verdict == "allow"
    }
    return frozenset(found | (set() if parse_shell(line).not_literal else {"literal"}))


def _fits(ran: list[str], words: list[Word]) -> bool:
    """Whether the words that were read may turn into those that ran."""
    if not words:
        return not ran
    if words[0].kind == "literal":
        return bool(ran) and ran[0] == words[0].text and _fits(ran[1:], words[1:])
    return any(_fits(ran[taken:], words[1:]) for taken in range(len(ran) + 1))


def find_escape(line: str, bash: Bash, workspace: Path) -> str:
    """What the line did although no rule let it; empty if it is not run or does nothing else."""
    under = runs_under(line, workspace)
    if not under or UNWANTED.search(line):
        return ""
    done = bash.run(line)
    if done is None:
        return ""
    commands, files = done
    reading = parse_shell(line)
    known = [list(each.words) for top in reading.commands for each in with_inner(top)]
    targets = [each.target for each in reading.redirects if each.writes]
    for ran in commands:
        if ran[0] in MISSPELT:
            continue
        if ran == ["id", "-u"]:  # by the machine's own /etc/profile, which `bash -l` reads
            continue
        if "yolo" in under and ran[:1] == [DENIED]:
            return f"the denied program ran: {ran}"
        if "plan" in under or ("allow" in under and ran[:1] not in ([ALLOWED], ["cat"])):
            return f"a program ran that no rule covers ({', '.join(sorted(under))}): {ran}"
        scripts = [word.text for words in known for word in words[1:] if words[0].text in ("bash", "sh")]
        if ran[0] in scripts:  # a shell found the file of this name
            continue
        if "literal" in under and not any(_fits(ran, words) for words in known):
            return f"a command ran that was not read: {ran}"
    for file in files:
        if "plan" in under or not any(file == each.text or each.kind != "literal" for each in targets):
            return f"a file was written that was not read: {file}"
    return ""


def minimise(line: str, escapes: Callable[[str], bool]) -> str:
    """The shortest line found by removing pieces that still escapes."""
    size = len(line) // 2
    while size:
        place = 0
        while place < len(line):
            shorter = line[:place] + line[place + size :]
            if escapes(shorter):
                line = shorter
            else:
                place += size
        size //= 2
    return line


@dataclass
class FuzzResult:
    """What one run did."""

    generated: int = 0
    executed: int = 0
    escapes: list[tuple[str, str]] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.generated:,} generated, {self.executed:,} executed, {len(self.escapes)} escapes"


def fuzz(lines: int, seed: int, folder: Path, workers: int = 2) -> FuzzResult:
    """Generates `lines` lines, runs those that rules let run, and collects the escapes."""
    generator, bash, result = LineGenerator(seed), Bash(folder), FuzzResult()
    workspace = folder / "workspace"
    workspace.mkdir(exist_ok=True)
    with ThreadPoolExecutor(workers) as pool:
        while result.generated < lines:
            batch = [generator.line() for _ in range(min(2_000, lines - result.generated))]
            result.generated += len(batch)
            run = [line for line in batch if not UNWANTED.search(line) and runs_under(line, workspace)]
            result.executed += len(run)
            reasons = pool.map(lambda line: find_escape(line, bash, workspace), run)
            for line, reason in zip(run, reasons, strict=True):
                if reason:
                    short = minimise(line, lambda text: bool(find_escape(text, bash, workspace)))
                    result.escapes.append((short, find_escape(short, bash, workspace) or reason))
    return result


BATCH = 200
"""Lines that a process tries before it reports."""


def fuzz_batch(order: tuple[int, int, str]) -> FuzzResult:
    lines, seed, folder = order
    own = Path(folder, str(os.getpid()))
    own.mkdir(exist_ok=True)
    return fuzz(lines, seed, own, workers=1)


def ignore_interrupts() -> None:
    """In a process: the main one says when to stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def fuzz_in_processes(lines: int, seed: int, processes: int, total: FuzzResult) -> None:
    """Adds to `total`, and prints it, whenever a process has tried a batch. SIGINT ends it early."""
    sizes = [min(BATCH, lines - begun) for begun in range(0, lines, BATCH)]
    with tempfile.TemporaryDirectory() as folder, Pool(processes, ignore_interrupts) as pool:
        orders = [(size, seed * 100_003 + at, folder) for at, size in enumerate(sizes)]
        try:
            for found in pool.imap_unordered(fuzz_batch, orders):
                total.generated += found.generated
                total.executed += found.executed
                total.escapes += found.escapes
                print(f"\r{total}", end="", flush=True)
                for line, reason in found.escapes:
                    print(f"\n  {line!r}: {reason}", flush=True)
        except KeyboardInterrupt:
            print("\nstopped", flush=True)


def interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=20_000, help="lines to generate")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--seed", type=int, default=None, help="repeats a run; by default a new one each time"
    )
    options = parser.parse_args()
    if shutil.which("bash") is None:
        print("bash is not installed.", file=sys.stderr)
        return 2
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1_000_000)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    started, total = time.monotonic(), FuzzResult()
    fuzz_in_processes(options.lines, seed, options.processes, total)
    print(f"\nseed {seed}: {total} in {time.monotonic() - started:.0f} s")
    return 1 if total.escapes else 0


if __name__ == "__main__":
    sys.exit(main())
