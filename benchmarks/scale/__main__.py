"""Measures rows of the table of sizes, and computes how each grows."""

import argparse
import importlib
import math
import sys
import traceback
from contextlib import nullcontext
from types import ModuleType

from benchmarks.scale import message_texts
from benchmarks.scale.database import on_server
from benchmarks.scale.long_texts import SHAPES

ROWS = {
    "turns": "CPU of a tool turn by tokens of history, headless",
    "turns_app": "the same in the app, and keys meanwhile",
    "calls": "calls in one reply, in the app",
    "processes": "headless runs on one database (--at-a-time 50)",
    "soak": "turns of one process, with compactions on the way",
    "tasks": "a list of tasks that only read, by their number",
    "export": "an export of one conversation, by its kilobytes",
    "markdown": "one markdown reply by its bytes, in the app (--shape, --warm-up)",
    "boundary": "a boundary by the generation it ends",
    "delete": "delete one of so many conversations, while another process writes",
    "search": "search among so many conversations",
    "list": "`sessions list` of so many conversations",
    "resume": "`run --continue` among so many conversations",
    "view": "20 lines of a file by its megabytes",
}
"""Each is a module beside this one, with `SIZES`, `AIM` and `measure(size)`, which gives named figures.
`QUICK` are sizes that show within a minute how it grows; without them the first two of `SIZES` are taken."""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale",
        epilog="\n".join(f"{name:<12} {text}" for name, text in ROWS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "rows", nargs="+", metavar="ROW", help="all, or some of those below", choices=(*ROWS, "all")
    )
    parser.add_argument("--sizes", type=sizes, help="such as 10k,100k,1m; each row counts something else")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--shape", choices=SHAPES, help="of markdown: what the reply is")
    parser.add_argument("--warm-up", type=number, help="of markdown: how long the reply before it is")
    parser.add_argument("--at-a-time", type=number, help="of processes: how many at once")
    parser.add_argument(
        "--postgres", action="store_true", help="on a server of PostgreSQL that runs for this alone"
    )
    parser.add_argument(
        "--text",
        choices=message_texts.KINDS,
        default="work",
        help="of many conversations: sources, prose and outputs, or words of random letters",
    )
    chosen = parser.parse_args()
    if chosen.sizes and "all" in chosen.rows:
        parser.error("--sizes is for rows by their names: each counts something else")
    message_texts.kind = chosen.text
    names = ROWS if "all" in chosen.rows else chosen.rows
    with on_server() if chosen.postgres else nullcontext():
        failed = [name for name in names if not _row(name, chosen)]
    if failed:
        sys.exit(f"not measured: {', '.join(failed)}")


def _row(name: str, chosen: argparse.Namespace) -> bool:
    """Prints one row. False where it could not be measured: the others are."""
    row = importlib.import_module(f"benchmarks.scale.{name}")
    if chosen.at_a_time:
        row.AT_A_TIME = chosen.at_a_time
    if chosen.shape:
        row.SHAPE = chosen.shape
    if chosen.warm_up:
        row.WARM_UP = chosen.warm_up
    print(f"{name}: {ROWS[name]}; aim: {row.AIM}", flush=True)
    try:
        _measure(row, chosen.sizes or sizes(_quick(row) if chosen.quick else row.SIZES))
    except Exception:
        traceback.print_exc()
        return False
    print(flush=True)
    return True


def _quick(row: ModuleType) -> str:
    return getattr(row, "QUICK", ",".join(row.SIZES.split(",")[:2]))


def _measure(row: ModuleType, wanted: list[int]) -> None:
    before: dict[str, float] = {}
    last = 0
    for size in wanted:
        found: dict[str, float] = row.measure(size)
        if not before:
            print("  ".join(f"{name:>14}" for name in ("size", *found)))
        cells = [f"{size:>14,}", *(f"{value:>14,.2f}" for value in found.values())]
        print("  ".join(cells), flush=True)
        if before:
            powers = [_power(last, size, before[name], value) for name, value in found.items()]
            print("  ".join([f"{'growth':>14}", *(f"{power:>14}" for power in powers)]), flush=True)
        before, last = found, size


def sizes(text: str) -> list[int]:
    """Those of a list with commas."""
    return [number(word) for word in text.split(",")]


def number(text: str) -> int:
    """10k is 10,000, 1m a million."""
    scale = {"k": 1_000, "m": 1_000_000}.get(text[-1:].lower(), 1)
    try:
        found = int(float(text[:-1] if scale > 1 else text) * scale)
    except (ValueError, OverflowError):
        found = 0
    if found < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no size of 1 or more, such as 500, 10k or 1m")
    return found


def _power(small: int, large: int, before: float, after: float) -> str:
    """`n^0` is flat, `n^1` linear, `n^2` quadratic."""
    if min(small, large, before, after) <= 0 or small == large:
        return "-"
    return f"n^{math.log(after / before) / math.log(large / small):.2f}"


if __name__ == "__main__":
    main()
