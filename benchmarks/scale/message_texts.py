"""What the messages of many conversations say: as work does (`work`), or words of random letters (`letters`).

`work` is a mix of what is there on every machine, the sources of Python's own library: a prompt and a reply
are sentences out of its docstrings; a result is, by turns, a piece of a source file with numbered lines,
lines that a search found, a listing of files, a report of tests with a traceback, the log of a service with
the id of each request, and a log of commits with their hashes. `letters` is the worst for an index by parts
of words: each run of three letters is as likely as any other.
"""

import random
import re
import sysconfig
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

KINDS = ("work", "letters")
kind = "work"
"""Which of the two the rows measure with."""
WORDS_A_RESULT = 120
_POOL = 2_000
_RESULT = 1_300
_DOCSTRING = re.compile(r'"""(.+?)"""', re.DOTALL)


def texts(conversation: int, many: int) -> Iterator[str]:
    """So many texts of one conversation, each with a word that no other has."""
    made = _work if kind == "work" else _letters
    for number in range(many):
        yield f"unique_{conversation}_{number} " + made(conversation, number)


def _letters(conversation: int, number: int) -> str:
    pool = _random_words()
    return pool[(conversation * 7 + number * 131) % len(pool)]


def _work(conversation: int, number: int) -> str:
    chance = random.Random(conversation * 64 + number)
    if number % 3 != 2:
        return _prose(chance)
    made = chance.choice((*_RESULTS, None))
    return made(chance) if made else _commits(chance, conversation)


def _prose(chance: random.Random) -> str:
    sentences = _sentences()
    return " ".join(chance.choice(sentences) for _ in range(4))


def _numbered_lines(chance: random.Random) -> str:
    _, lines = chance.choice(_sources())
    first = chance.randrange(len(lines))
    return _up_to(f"{number:>6}\t{line}" for number, line in enumerate(lines[first:], first + 1))


def _found_lines(chance: random.Random) -> str:
    return _up_to(_found_line(chance) for _ in range(40))


def _found_line(chance: random.Random) -> str:
    name, lines = chance.choice(_sources())
    place = chance.randrange(len(lines))
    return f"{name}:{place + 1}: {lines[place].strip()}"


def _listing(chance: random.Random) -> str:
    def line() -> str:
        name, lines = chance.choice(_sources())
        size, day = 30 * len(lines) + chance.randrange(8), len(lines) % 28 + 1
        return f"-rw-r--r-- 1 dev dev {size:>6} Nov {day:>2} {size % 24:02}:{size % 60:02} {name}"

    return _up_to(line() for _ in range(40))


def _service_log(chance: random.Random) -> str:
    return _up_to(
        f"2026-11-{chance.randrange(1, 29):02}T{chance.randrange(24):02}:{chance.randrange(60):02}:"
        f"{chance.random() * 60:09.6f} INFO request={chance.getrandbits(48):012x} "
        f"{chance.choice(('GET', 'POST'))} /api/{chance.choice(_sources())[0]} {chance.randrange(900)}ms"
        for _ in range(30)
    )


def _test_report(chance: random.Random) -> str:
    ran = (
        f"tests/test_{chance.choice(_sources())[0].rpartition('/')[2]}::test_{chance.randrange(400)} "
        f"{chance.choice(('PASSED', 'PASSED', 'FAILED'))} [{chance.random():.3f}s]"
        for _ in range(10)
    )
    return (
        "\n".join(ran)
        + "\nTraceback (most recent call last):\n"
        + _up_to(
            f'  File "/srv/app/{name}", line {place}, in {chance.choice(("main", "run", "load"))}\n    {line}'
            for name, place, line in (_found_line(chance).split(":", 2) for _ in range(8))
        )
    )


def _commits(chance: random.Random, conversation: int) -> str:
    """The last ones of a project that gets a commit in every other conversation."""
    return _up_to(
        f"{random.Random(commit).getrandbits(160):040x} {_sentences()[commit % len(_sentences())][:60]}"
        for commit in range(conversation // 2 + 12, conversation // 2, -1)
    )


_RESULTS: list[Callable[[random.Random], str]] = [
    *(_numbered_lines, _numbered_lines, _found_lines, _found_lines),
    *(_listing, _test_report, _service_log),
]


def _up_to(lines: Iterator[str]) -> str:
    taken: list[str] = []
    size = 0
    for line in lines:
        taken.append(line)
        size += len(line)
        if size > _RESULT:
            break
    return "\n".join(taken)[: 2 * _RESULT]


@cache
def _sources() -> list[tuple[str, list[str]]]:
    """Files of Python's library: their paths in it, and their lines."""
    top = Path(sysconfig.get_path("stdlib"))
    files = sorted(file for file in top.glob("**/*.py") if not {"site-packages", "test"} & set(file.parts))
    read = ((str(file.relative_to(top)), file.read_text(errors="replace").splitlines()) for file in files)
    return [(name, lines) for name, lines in read if lines]


@cache
def _sentences() -> list[str]:
    found = (text for _, lines in _sources() for text in _DOCSTRING.findall("\n".join(lines)))
    sentences = (" ".join(word.split()) for text in found for word in text.split(". "))
    return [sentence for sentence in sentences if len(sentence) > 20]


@cache
def _random_words() -> list[str]:
    """Some words are everywhere, some in one message only."""
    chance = random.Random(11)
    letters = "abcdefghijklmnopqrstuvwxyz"
    known = ["".join(chance.choices(letters, k=chance.randint(2, 11))) for _ in range(20_000)]
    weights = [1 / (place + 1) for place in range(len(known))]
    return [" ".join(chance.choices(known, weights, k=WORDS_A_RESULT)) for _ in range(_POOL)]
