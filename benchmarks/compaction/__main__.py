"""`python -m benchmarks.compaction [--quick] [--generations N] [--against NAMES] [--kit]`: prints a table."""

import argparse
import asyncio
import time
from dataclasses import replace

from benchmarks.compaction import against, kit, measure, scenario, summarisers

QUICK = scenario.Sizes(noise=1_200, looks=1, batch=8)
BESIDE = scenario.Sizes(noise=6_000, looks=2, batch=8)
BEYOND = scenario.Sizes(
    generations=2, paths=500, failing=240, todos=60, requests=60, noise=800, looks=0, batch=25
)
SHORT = scenario.Sizes(
    generations=2, paths=20, failing=10, todos=4, requests=6, noise=1_200, looks=1, batch=4
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compaction", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small files; the window fills by report")
    parser.add_argument("--generations", type=int, default=8, metavar="N", help="compactions in a row")
    parser.add_argument("--window", type=int, default=200_000, metavar="TOKENS")
    parser.add_argument(
        "--against",
        type=_packages,
        metavar="NAMES",
        help=f"the same conversation through other packages, beside ours: {','.join(against.PACKAGES)}",
    )
    parser.add_argument(
        "--kit", action="store_true", help="what an outside kit finds, with --against beside ours"
    )
    parser.add_argument("--save", action="store_true", help=f"with --against: writes {against.FIGURES.name}")
    chosen = parser.parse_args()
    if chosen.kit:
        print(asyncio.run(kit.table(chosen.against or [])))
        return
    if chosen.against is not None:
        sizes = QUICK if chosen.quick else BESIDE
        table = asyncio.run(against.table(chosen.against, sizes, window=chosen.window))
        print(table)
        if chosen.save:
            against.FIGURES.write_text(f"{table}\n", "utf-8")
        return
    sizes = replace(QUICK if chosen.quick else scenario.Sizes(), generations=chosen.generations)
    asyncio.run(report(sizes, quick=chosen.quick, window=chosen.window))


def _packages(names: str) -> list[str]:
    found = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in found if name not in against.PACKAGES]
    if unknown or not found:
        known = ", ".join(against.PACKAGES)
        raise argparse.ArgumentTypeError(f"there is no {', '.join(unknown) or 'name'}; known are {known}")
    return found


async def report(sizes: scenario.Sizes, *, quick: bool, window: int) -> None:
    steps = sum(len(turn.steps) for turn in scenario.make(sizes).turns)
    print(
        f"{steps} steps, {sizes.requests} requests, {sizes.paths} changed paths, "
        f"{sizes.failing} failing commands, {sizes.todos} todos; "
        f"window {window:,} tokens{', quick' if quick else ''}\n"
    )
    kinds = "".join(f"{kind + 's' if kind != 'other' else kind:>10}" for kind in measure.KINDS)
    print(f"{'summariser':<12}{'input':>7}  {'gen':>3}{kinds}{'tokens before > after':>24}{'calls':>12}")
    for name, summariser in summarisers.ALL.items():
        started = time.monotonic()
        figures = await measure.run(scenario.make(sizes), summariser, window=window, quick=quick)
        seconds = time.monotonic() - started
        shown = sorted({0, min(sizes.generations, len(figures.survival)) - 1})
        for number in shown:
            shares = "".join(f"{figures.survival[number][kind]!s:>10}" for kind in measure.KINDS)
            before, after = figures.tokens[number]
            first = number == 0
            lead = f"{name:<12}{figures.input_recall.percent:>7}" if first else " " * 19
            calls = f"{figures.agent_calls} + {figures.summary_calls}" if first else f"{seconds:.0f} s"
            print(f"{lead}  {number + 1:>3}{shares}{f'{before:,} > {after:,}':>24}{calls:>12}")
    print()
    beyond = await measure.beyond_the_bound(scenario.make(BEYOND), window=window)
    share = measure.Share(beyond.found, beyond.left_out)
    print(
        f"beyond the bound   {beyond.planted} facts, {beyond.left_out} of them not in the child's first "
        f"request; one recall finds {share.percent}"
    )
    for placement in ("message", "append"):
        prefixes = await measure.prefixes(scenario.make(SHORT), placement, window=window)
        print(
            f"llm, status as {placement:<8} {prefixes.compared} requests, "
            f"{prefixes.bytes_changed} bytes of the cached prefix changed"
        )
    overflowed = await measure.always_overflow(scenario.make(SHORT), window=window)
    print(f"always overflow    {overflowed.summary_calls} calls of a summariser before giving up")


if __name__ == "__main__":
    main()
