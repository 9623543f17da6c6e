"""Texts that benchmarks stream: everyday markdown, and the kinds that make renderers stall."""

_PART = """\
## Step {n}: where the time goes

The parser reads **every line** once and keeps what is finished; see `stream.py` and the
[notes](https://example.org/notes/{n}) for *why* this matters. A longer sentence follows, so that wrapping has
something to do at any width between twenty and three hundred columns, which is what terminals come in.

- first, measure the thing that is slow, not the thing that looks slow
- second, change one thing
  - and only one
- third, measure again: {n} ms before, {m} ms after

```python
def settle(self, final: bool = False) -> int:
    \"\"\"Draws what can no longer change.\"\"\"
    total = 0
    for unit in self.units():
        total += len(unit.rows) * {n}  # rows, not lines
    return total
```

| stage | before | after |
|---|---:|---:|
| parse | {n} | {m} |
| wrap | 1{n} | 3 |
| paint | 2{n} | 1 |

> Nothing is laid out while text arrives.

1. open the file
2. read it

"""


def everyday(size: int = 12_000) -> str:
    """Mixed markdown of about that many characters."""
    parts: list[str] = []
    while sum(map(len, parts)) < size:
        parts.append(_PART.format(n=len(parts) + 1, m=7 * len(parts) % 13))
    return "".join(parts)[:size]


def chunks(text: str, count: int = 3_000) -> list[str]:
    """`text` in so many pieces of almost the same length."""
    return [text[len(text) * n // count : len(text) * (n + 1) // count] for n in range(count)]


def pathological() -> dict[str, str]:
    """Markdown that stalls a careless renderer."""
    row = "|" + " cell *x* |" * 20 + "\n"
    return {
        "a line of 1 MB": "word " * 200_000,
        "a line of 1 MB, wide characters": "漢字 " * 120_000,
        "a table of 500 x 20": row + "|" + "---|" * 20 + "\n" + row * 500,
        "an unclosed fence of 5,000 lines": "```python\n" + "x = [1, 2, 3]  # comment\n" * 5_000,
        "quotes nested 500 deep": "\n".join([">" * depth + " text" for depth in range(1, 500)]),
        "lists nested 200 deep": "\n".join(["  " * depth + "- item" for depth in range(200)]),
        "7,900 brackets": "[" * 7_900,
        "emphasis that never closes": "*a **b _c __d " * 560,
        "one paragraph of 100,000 lines": "some words in a line\n" * 100_000,
        "2,000 list items": "- an item with *some* `text`\n" * 2_000,
    }
