"""Every regular expression of the package takes time in proportion to the text, however hostile that is.

Those are tried that stand in a module, by themselves or in a table, and those spelled where they are used.
"""

import ast
import importlib
import pkgutil
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import crushpy

pytestmark = pytest.mark.nightly

SMALL, LARGE = 200, 2_000
SUSPECT_SECONDS = 0.002
"""Of the large text. A linear pattern needs a hundredth of it."""
MOST_TIMES_SLOWER = 40
"""10 is linear, 100 is quadratic."""
UNITS = (
    *(
        "\0",
        "\b",
        "\t",
        "\n",
        "\r",
        "\x1b",
        "\x1b[",
        "\u200d",
        " ",
        "a ",
        "- ",
        "a/",
        "a.",
        "a-",
        "a\\",
        '\\"',
    ),
    *"!\"'#$*-./0:<=A[\\]_`a{~",
)
STARTS = frozenset(("match", "fullmatch"))
"""How a pattern is used that is tried at one place only."""


def patterns() -> Iterator[tuple[str, "re.Pattern[Any]", bool]]:
    """Each pattern with where it stands, and whether it is tried at every place of a text."""
    for module in pkgutil.walk_packages(crushpy.__path__, "crushpy."):
        if module.name.endswith("__main__"):
            continue
        loaded = importlib.import_module(module.name)
        source = Path(str(loaded.__file__)).read_text()
        for name, value in vars(loaded).items():
            used = set(re.findall(rf"\b{name}\.(\w+)\(", source))
            used |= {"match"} if f"_match({name}, " in source else set()
            for pattern in held(value):
                yield f"{module.name}.{name}", pattern, not used or not used <= STARTS
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and re.fullmatch(
                r"re\.(?!compile|escape)\w+", ast.unparse(node.func)
            ):
                try:
                    pattern = re.compile(eval(ast.unparse(node.args[0]), vars(loaded)), flags(node))
                except Exception:
                    continue  # made of what only a call knows
                yield f"{module.name}:{node.lineno}", pattern, ast.unparse(node.func)[3:] not in STARTS


def held(value: Any) -> list["re.Pattern[Any]"]:
    if isinstance(value, re.Pattern):
        return [cast("re.Pattern[Any]", value)]
    if isinstance(value, dict):
        return held(list(cast("dict[Any, Any]", value).values()))
    if isinstance(value, list | tuple | set | frozenset):
        return [each for item in cast("list[Any]", value) for each in held(item)]
    return []


def flags(call: ast.Call) -> int:
    given = [*call.args[1:], *(keyword.value for keyword in call.keywords)]
    spelled = [ast.unparse(each) for each in given]
    return sum(
        eval(each, {"re": re}) for each in spelled if re.fullmatch(r"re\.[A-Z]+(?: \| re\.[A-Z]+)*", each)
    )


def fragments(pattern: "re.Pattern[Any]") -> set[str]:
    """Texts that stand in the pattern: what comes after one of them may be tried in many ways."""
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    plain = re.sub(r"\[[^\]]*\]|\(\?[^)]{0,3}|\\[a-zA-Z]|\{[\d,]+\}", "\n", source)
    found = (each.replace("\\", "") for each in re.findall(r"(?:[^\n\\()|?*+^$.\[\]]|\\[^\w\n])+", plain))
    return {each for each in found if each}


def hostile(pattern: "re.Pattern[Any]", size: int) -> Iterator[Any]:
    known = sorted(fragments(pattern), key=lambda text: (-len(text), text))[:6]
    for unit in (*UNITS, *known, *(f"{known[0]}{each}" for each in ("a", " ") if known)):
        for start in ("", *known[:2]):
            for end in ("", "\x01"):
                text = start + unit * (size // len(unit)) + end
                yield text.encode("latin-1", "replace") if isinstance(pattern.pattern, bytes) else text


def seconds(run: Callable[[], object], times: int) -> float:
    """The least CPU time of several tries: what else the machine does is not counted."""
    best = float("inf")
    for _ in range(times):
        start = time.thread_time()
        run()
        best = min(best, time.thread_time() - start)
    return best


def tried(pattern: "re.Pattern[Any]", text: Any, everywhere: bool) -> Callable[[], object]:
    if everywhere:
        return lambda: len(pattern.findall(text))
    return lambda: [pattern.match(text) is None, pattern.fullmatch(text) is None]


def test_every_pattern_is_linear_in_the_text() -> None:
    slow: dict[str, str] = {}
    seen: set[tuple[Any, int, bool]] = set()
    for where, pattern, everywhere in patterns():
        if (pattern.pattern, pattern.flags, everywhere) in seen:
            continue
        seen.add((pattern.pattern, pattern.flags, everywhere))
        for small, large in zip(hostile(pattern, SMALL), hostile(pattern, LARGE), strict=True):
            if seconds(tried(pattern, large, everywhere), 1) < SUSPECT_SECONDS:
                continue
            least = seconds(tried(pattern, small, everywhere), 5)
            most = seconds(tried(pattern, large, everywhere), 3)
            if most > MOST_TIMES_SLOWER * least:  # on a busy machine a few tries may all be slow
                most = seconds(tried(pattern, large, everywhere), 20)
            if most > SUSPECT_SECONDS and most > MOST_TIMES_SLOWER * least:
                slow[where] = f"{pattern.pattern!r} on {large[:20]!r}: {most / least:.0f} times slower"
                break
    assert slow == {}
    assert len(seen) > 100
