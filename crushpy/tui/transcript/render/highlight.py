"""Colours code with pygments, in a thread. Pygments is loaded when it is first needed."""

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from threading import Thread
from typing import Any

ColouredPiece = tuple[str, str]
"""Some code and its role: a name of `styles.INLINE`, or empty."""
Coloured = list[list[ColouredPiece]]
"""Lines of pieces."""
Done = Callable[[Sequence[Coloured] | None], None]
"""Called with the lines of each code of a request; None if they cannot be coloured."""

MAX_CODE_CHARS = 120_000
MAX_LINE_CHARS = 1_000
"""Code that is larger or has longer lines is not coloured: some lexers are too slow for it."""
MAX_CACHED_RESULTS = 32

_ROLES = (
    ("Token.Comment.Preproc", "keyword"),
    ("Token.Comment", "comment"),
    ("Token.Literal.String.Doc", "comment"),
    ("Token.Literal.String", "string"),
    ("Token.Literal.Number", "number"),
    ("Token.Keyword.Type", "type"),
    ("Token.Keyword", "keyword"),
    ("Token.Name.Function", "function"),
    ("Token.Name.Class", "type"),
    ("Token.Name.Decorator", "function"),
    ("Token.Name.Builtin", "type"),
    ("Token.Name.Tag", "keyword"),
    ("Token.Name.Attribute", "function"),
    ("Token.Name.Variable", "type"),
    ("Token.Operator.Word", "keyword"),
    ("Token.Operator", "operator"),
    ("Token.Generic.Inserted", "string"),
    ("Token.Generic.Deleted", "operator"),
)

_OTHER_NAMES = {"patch": "diff"}
"""Languages by names that pygments does not know."""

HighlightJob = tuple[str, tuple[str, ...]]
"""A language and some codes that are coloured together."""


class Highlighter:
    """Works through requests in order, and caches the last results."""

    def __init__(self) -> None:
        self._results: OrderedDict[HighlightJob, list[Sequence[Coloured] | None]] = OrderedDict()
        """Each with one result, or none while a thread is working on it."""
        self._queue: deque[tuple[HighlightJob, Done]] = deque()

    @property
    def busy(self) -> bool:
        return bool(self._queue)

    def request(self, language: str, codes: tuple[str, ...], done: Done) -> None:
        """Calls `done` at once if the colours are known, or the codes too large for any; else from `work`."""
        job = (language, codes)
        if known := self._results.get(job):
            self._results.move_to_end(job)
            done(known[0])
        elif not language or any(map(_is_too_large, codes)):
            done(None)
        else:
            self._queue.append((job, done))

    def drop(self) -> None:
        """Drops all pending requests."""
        self._queue.clear()

    def work(self, until: float) -> None:
        """Hands over what is coloured by now, until that time (`time.perf_counter`). A thread works: loading
        a lexer alone takes up to a fifth of a second."""
        while self._queue and time.perf_counter() <= until:
            job, done = self._queue[0]
            if job not in self._results:
                self._results[job] = []
                Thread(target=_colour, args=(job, self._results[job]), daemon=True).start()
                if len(self._results) > MAX_CACHED_RESULTS:
                    self._results.popitem(last=False)
            if not self._results[job]:
                return
            self._queue.popleft()
            done(self._results[job][0])


def _is_too_large(code: str) -> bool:
    return len(code) > MAX_CODE_CHARS or max(map(len, code.split("\n"))) > MAX_LINE_CHARS


def _colour(job: HighlightJob, results: list[Sequence[Coloured] | None]) -> None:
    """Adds the lines of the codes to `results`."""
    coloured: list[Coloured] | None = None
    with suppress(Exception):  # a lexer that fails must not end the app
        if lexer := _lexer(job[0]):
            coloured = [_lines(lexer, code) for code in job[1]]
    results.append(coloured)


@cache
def _lexer(language: str) -> Any:
    """The lexer for a language's name or a file's name; None if there is none."""
    from pygments import lexers
    from pygments.util import ClassNotFound

    known: Any = lexers
    find: Any
    language = _OTHER_NAMES.get(language, language)
    try:
        find = known.get_lexer_for_filename if "." in language else known.get_lexer_by_name
        return find(language.lower(), stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


@cache
def _role(kind: str) -> str:
    return next((role for prefix, role in _ROLES if kind.startswith(prefix)), "")


def _lines(lexer: Any, code: str) -> Coloured:
    """The lines of some code. Raises ValueError if the lexer adds or loses a character."""
    lines: Coloured = [[]]
    for kind, text in lexer.get_tokens(f"{code}\n"):  # some lexers need the line break
        first, *rest = text.split("\n")
        if first:
            lines[-1].append((first, _role(str(kind))))
        for line in rest:
            lines.append([(line, _role(str(kind)))] if line else [])
    if lines[-1] == []:
        lines.pop()  # after the line break that was added
    if "\n".join(["".join([text for text, _ in line]) for line in lines]) != code:
        raise ValueError("the code was changed")
    return lines
