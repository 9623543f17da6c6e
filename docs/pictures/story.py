"""What happens in the pictures: an agent fixes a shop's tax rates, then reads orders until it compacts."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from scripted_llm.replies import Body, Call, Reply

FILES = {
    "README.md": "# Shop\n\nBaskets, prices and receipts of a small shop.\n",
    "AGENTS.md": "Run `pytest -q` after a change. Amounts are integers, in cents.\n",
    "shop/__init__.py": "",
    "shop/cart.py": '''"""What is in the basket, and what it costs."""

from dataclasses import dataclass

RATE = 19


@dataclass
class Item:
    name: str
    cents: int
    kind: str = "other"


def total(items: list[Item]) -> int:
    """What the customer pays, in cents."""
    net = sum(item.cents for item in items)
    return round(net * (100 + RATE) / 100)
''',
    "shop/receipt.py": '''"""What is printed."""

from shop.cart import RATE, Item, total


def receipt(items: list[Item]) -> str:
    lines = [f"{item.name:<20}{item.cents / 100:>8.2f}" for item in items]
    return "\\n".join([*lines, f"incl. {RATE}% VAT{total(items) / 100:>14.2f}"])
''',
    "tests/test_cart.py": """from shop.cart import Item, total


def test_a_lamp_is_taxed_in_full():
    assert total([Item("lamp", 1000)]) == 1190


def test_books_have_the_lower_rate():
    assert total([Item("atlas", 1000, "book")]) == 1070


def test_a_basket_of_both():
    assert total([Item("lamp", 1000), Item("atlas", 1000, "book")]) == 2260
""",
    "pyproject.toml": """[project]
name = "shop"
version = "0.4.0"

[tool.pytest.ini_options]
pythonpath = ["."]
addopts = "-p no:cacheprovider"
""",
    ".gitignore": "__pycache__/\n",
}
MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september")
GOODS = (("atlas", "book"), ("lamp", "other"), ("novel", "book"), ("desk", "other"))
CITIES = ("Lisbon", "Oslo", "Turin", "Ghent", "Porto")


def _orders(month: int) -> str:
    rows = [
        f"{1000 * month + row},2026-{month:02}-{row % 28 + 1:02},"
        f"{CITIES[row % 5]},{','.join(GOODS[row % 4])},{row * 137 % 9000}"
        for row in range(1, 101)
    ]
    return "\n".join(["order,date,city,item,kind,cents", *rows, ""])


FILES |= {f"orders/{name}.csv": _orders(month) for month, name in enumerate(MONTHS, 1)}
PROMPT = "books are taxed at 7%, everything else at 19%: fix total() and run the tests"
TITLE = "Books are taxed at 7%"
ORDERS_PROMPT = "check the orders of each month: which ones were charged the wrong tax on books?"
BEFORE = "    net = sum(item.cents for item in items)\n    return round(net * (100 + RATE) / 100)"
AFTER = "    return sum(round(item.cents * (100 + RATES.get(item.kind, FULL_RATE)) / 100) for item in items)"
ANSWER = """\
Books are taxed at **7%** now, everything else at 19%. All three tests pass.

| basket | before | now |
| --- | ---: | ---: |
| a lamp | 11.90 | 11.90 |
| an atlas | 11.90 | **10.70** |
| both | 23.80 | **22.60** |

The rates stand in one place, `shop/cart.py`:

```python
FULL_RATE = 19
RATES = {"book": 7}
```

`receipt()` still prints one rate for the whole basket. Shall it list both?
"""
SUMMARY = """\
## Goal
Books are taxed at 7%, everything else at 19%.

## Done
- `shop/cart.py`: `RATES` and `FULL_RATE`; `total()` rounds item by item.
- `pytest -q`: 3 passed.

## Next
- `receipt()` in `shop/receipt.py` prints one rate for the whole basket: ask whether it shall list both.
"""


def _todos(done: int) -> Call:
    steps = ("Find where tax is added", "Let the kind decide the rate", "Run the tests")
    states = ["done" if at < done else "doing" if at == done else "open" for at in range(len(steps))]
    names = {"done": "completed", "doing": "in_progress", "open": "pending"}
    return Call(
        "todos",
        {
            "todos": [
                {"text": text, "status": names[state]} for text, state in zip(steps, states, strict=True)
            ]
        },
    )


def _tests() -> Call:
    return Call("bash", {"command": "pytest -q"})


STEPS = [
    Reply("I look at how prices are made first.", calls=[_todos(0)], chunk=4, delay=0.03),
    Reply(
        calls=[
            Call("view", {"file_path": "shop/cart.py"}),
            Call("view", {"file_path": "tests/test_cart.py"}),
            Call("grep", {"pattern": "RATE"}),
        ],
    ),
    Reply("Two of the tests should fail now.", calls=[_tests()], chunk=4, delay=0.03),
    Reply(
        "One rate for all: `total()` has to ask each item.",
        calls=[
            _todos(1),
            Call(
                "multiedit",
                {
                    "file_path": "shop/cart.py",
                    "edits": [
                        {"old_string": "RATE = 19", "new_string": 'FULL_RATE = 19\nRATES = {"book": 7}'},
                        {"old_string": BEFORE, "new_string": AFTER},
                    ],
                },
            ),
        ],
        chunk=4,
        delay=0.03,
    ),
    Reply(calls=[_todos(2), _tests()]),
    Reply(calls=[_todos(3)]),
    Reply(ANSWER, chunk=6, delay=0.02),
]


ORDER_STEPS = [
    *(
        Reply(
            f"Now {month.capitalize()}.",
            calls=[Call("view", {"file_path": f"orders/{month}.csv"})],
            chunk=4,
            delay=0.05,
        )
        for month in MONTHS
    ),
    Reply(
        "Every order of a **novel** or an **atlas** before the fix was charged 19% instead of 7%: 450 orders "
        "from January to September, in all nine files.",
        chunk=6,
        delay=0.02,
    ),
]


class Story:
    """Answers requests: the agent's with the next step, others with a title or a summary."""

    def __init__(self, later: Sequence[Reply] = ()) -> None:
        self._steps = iter([*STEPS, *ORDER_STEPS, *later])

    def __call__(self, body: Body) -> Reply:
        if body.get("tools"):
            return next(self._steps, Reply("Done."))
        wanted = str(body.get("messages"))
        return Reply(SUMMARY if "ummar" in wanted else TITLE)


def shop(folder: Path) -> Path:
    """The project, always the same."""
    project = folder / "shop"
    for name, text in FILES.items():
        file = project / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    git = ["git", "-C", str(project), "-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "The shop"]):
        subprocess.run([*git, *words], check=True)
    return project
