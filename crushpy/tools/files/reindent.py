"""Carries a difference in indentation over from lines a model quoted to those it wants instead. Pure."""

from collections.abc import Callable, Sequence

_Rule = Callable[[str], str | None]
"""From the indentation a model wrote to that of the file; None where it cannot be told."""


def reindenter(quoted: Sequence[str], there: Sequence[str]) -> Callable[[str], str | None]:
    """What turns a text indented like `quoted` into one indented like `there`, its counterpart in the file.

    It gives None where the difference follows no rule: guessing could change what a program means.
    """
    pairs = [(_indent(a), _indent(b)) for a, b in zip(quoted, there, strict=True) if a.strip()]
    rule = _same(pairs) or _deeper(pairs) or _shallower(pairs) or _other_unit(pairs)

    def apply(new: str) -> str | None:
        if rule is None:
            return None
        lines: list[str] = []
        for line in new.split("\n"):
            if not line.strip():
                lines.append(line)
                continue
            before = _indent(line)
            after = rule(before)
            if after is None:
                return None
            lines.append(after + line[len(before) :])
        return "\n".join(lines)

    return apply


_Pairs = Sequence[tuple[str, str]]


def _same(pairs: _Pairs) -> _Rule | None:
    return (lambda indent: indent) if all(a == b for a, b in pairs) else None


def _deeper(pairs: _Pairs) -> _Rule | None:
    """The file has the same more in front of each line."""
    first, there = pairs[0]
    if not there.endswith(first):
        return None
    more = there.removesuffix(first)
    return (lambda indent: more + indent) if all(b == more + a for a, b in pairs) else None


def _shallower(pairs: _Pairs) -> _Rule | None:
    """The file has the same less in front of each line."""
    first, there = pairs[0]
    if not first.endswith(there):
        return None
    less = first.removesuffix(there)
    if not all(a == less + b for a, b in pairs):
        return None
    return lambda indent: indent.removeprefix(less) if indent.startswith(less) else None


def _other_unit(pairs: _Pairs) -> _Rule | None:
    """Tabs for spaces, or another number of spaces, in one constant proportion."""
    quoted, there = next(((a, b) for a, b in pairs if a and b), ("", ""))
    if not quoted:
        return None
    mark, unit, wanted = quoted[0], len(quoted), there[0]

    def rule(indent: str) -> str | None:
        if indent.strip(mark) or len(indent) * len(there) % unit:
            return None
        return wanted * (len(indent) * len(there) // unit)

    return rule if all(rule(a) == b for a, b in pairs) else None


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]
