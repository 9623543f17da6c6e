"""Very long replies of different shapes, by their bytes."""

from collections.abc import Callable
from itertools import count

from benchmarks.samples import everyday

_WORDS = "The parser reads every line once and keeps what is finished, so nothing waits for the rest. "
_CHINESE = (
    "解析器每一行只读一次，已经完成的内容会被保留下来，所以没有人需要等待其余的部分。在改变任何东西之前，"
)
SHAPES: dict[str, Callable[[int], str]] = {
    "mixed": lambda number: everyday(100_000),
    "paragraph": lambda number: _WORDS,
    "code": lambda number: f"    total_{number} = compute(value, {number})  # rows, not lines\n",
    "table": lambda number: f"| row {number} | *{number * 7 % 13}* | {_WORDS[:40]} |\n",
    "list": lambda number: f"- item **{number}**: {_WORDS}\n",
    "chinese": lambda number: f"## 第 {number} 步\n\n{_CHINESE * 3}\n\n",
    "dashes": lambda number: f"Step {number} \N{EM DASH} {_WORDS * 3}\n\n",
    "emoji": lambda number: f"- \N{ROCKET} item **{number}**: {_WORDS}\n",
    "one-emoji": lambda number: everyday(100_000) if number else "\N{ROCKET} Here it is.\n\n",
}
"""A piece of each, by its number. All but the mixed ones are one block, where that can be."""
_BEGINNINGS = {"code": "```python\n", "table": "| what | figure | words |\n|---|---:|---|\n"}
_ENDS = {"code": "\n```"}


def long_text(shape: str, size: int) -> str:
    """About so many bytes."""
    pieces = [_BEGINNINGS.get(shape, "")]
    left = size
    for number in count():
        piece = SHAPES[shape](number)
        pieces.append(piece if (many := len(piece.encode())) <= left else piece[: left * len(piece) // many])
        left -= many
        if left <= 0:
            return "".join([*pieces, _ENDS.get(shape, "")])
    raise AssertionError
