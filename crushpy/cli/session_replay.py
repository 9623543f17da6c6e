"""`crushpy sessions replay` and `crushpy stats --replay`: what other settings would have done."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from crushpy.cli.command_helpers import (
    AsJson,
    SessionId,
    find_session,
    format_table,
    open_browser,
    option,
    print_either,
)
from crushpy.cli.workspace import load_models
from crushpy.core.errors import UsageError
from crushpy.core.messages import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from crushpy.engine.compaction.replay import Replay, ReplayChanges

SETTINGS = (
    "method=auto|llm, threshold=0.6|off, window=N, prepare=true|false, carry=lean|normal|full, template=FILE"
)
THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9)
LEVELS = " ▁▂▃▄▅▆▇█"
LINE_COLUMNS = 60


async def replay_command(
    session: SessionId,
    method: Annotated[Literal["auto", "llm"] | None, option("--method", "Who compacts.")] = None,
    threshold: Annotated[str, option("--threshold", "In (0, 1], or off.", metavar="T")] = "",
    template: Annotated[str, option("--template", "A summary template.", metavar="FILE")] = "",
    window: Annotated[str, option("--window", "Tokens of the window.", metavar="N")] = "",
    prepare: Annotated[
        bool | None, option("--prepare/--no-prepare", "Whether summaries are prepared.")
    ] = None,
    carry: Annotated[
        Literal["lean", "normal", "full", "all"] | None,
        option("--carry", "How much a compaction carries; all: each of the three."),
    ] = None,
    compare: Annotated[str, option("--compare", f"Others: {SETTINGS}.", metavar="SETTINGS")] = "",
    as_json: AsJson = False,
) -> None:
    """Walk a stored conversation under other settings, without a model. Nothing is changed."""
    from crushpy.engine.compaction.judged_boundaries import replay_judged
    from crushpy.engine.compaction.replay import ReplayChanges

    given = {"method": method or "", "threshold": threshold, "template": template, "window": window}
    given["prepare"] = "" if prepare is None else str(prepare).lower()
    pairs = (change.partition("=") for change in compare.split(",") if change.strip())
    given = {name: value for name, value in given.items() if value}
    carries = ("lean", "normal", "full") if carry == "all" else (carry,) if carry else ()
    changes = [ReplayChanges(), *(_read_changes({**given, "carry": size}) for size in carries)]
    changes += [] if carries else [_read_changes(given)]
    changes.append(_read_changes({name.strip(): value.strip() for name, _, value in pairs}))
    settings, models = load_models()
    async with find_session(session) as (browser, info):
        found = await replay_judged(browser.store, info.id, settings, models, dict.fromkeys(changes))
    print_either(as_json, {"session": info.id, "replays": found}, _report(found))


def _read_changes(values: "Mapping[str, str]") -> "ReplayChanges":
    from crushpy.core.templates import template_from_file
    from crushpy.engine.compaction.replay import ReplayChanges

    try:
        changes = msgspec.convert(values, ReplayChanges, strict=False)
    except msgspec.ValidationError as error:
        words = ", ".join(f"{name}={value}" for name, value in values.items())
        raise UsageError(f"{words} cannot be replayed: {error}", f"Use {SETTINGS}.") from None
    text = template_from_file("summary", Path(changes.template)).text if changes.template else ""
    return msgspec.structs.replace(changes, template=text)


def _report(found: "Sequence[Replay]") -> list[str]:
    rows = [
        ("", [replayed.label for replayed in found]),
        ("compactions", [str(len(replayed.boundaries)) for replayed in found]),
        ("largest request", [f"{replayed.peak:,}" for replayed in found]),
        ("input tokens", [f"{replayed.usage.total - replayed.usage.output_tokens:,}" for replayed in found]),
        ("  cached", [f"{replayed.usage.cache_read_tokens:,}" for replayed in found]),
        ("output tokens", [f"{replayed.usage.output_tokens:,}" for replayed in found]),
        ("estimated requests", [f"{replayed.estimated} of {len(replayed.requests)}" for replayed in found]),
        ("cost", [f"${replayed.usage.cost:.4f}" if replayed.usage.cost else "-" for replayed in found]),
        ("recorded facts carried", [f"{replayed.facts[1]} of {replayed.facts[0]}" for replayed in found]),
        ("names needed later, carried", [_names(*replayed.names) for replayed in found]),
    ]
    lines = format_table([(name, *row) for name, row in rows], right=range(1, len(found) + 1))
    for replayed in found:
        lines += ["", f"{replayed.label}: {_line(replayed)}"]
        for made in replayed.boundaries:
            at = f"{made.trigger} ({made.moment})" if made.moment else made.trigger
            place = f"after {counted(made.number, 'message')}, before {made.before_message or 'the end'}"
            sizes = f"{made.tokens_before:,} -> {made.tokens_after:,} tokens"
            lines.append(f"  {place}: {at}, {sizes}, {made.carried} of {made.facts} recorded facts carried")
    return [*lines, *_unknown(found)]


def _names(needed: int, carried: int) -> str:
    return f"{carried} of {needed} ({carried / needed:.0%})" if needed else "-"


def _unknown(found: "Iterable[Replay]") -> list[str]:
    return [
        "",
        "A replay cannot know:",
        *dict.fromkeys(f"  {text}" for replayed in found for text in replayed.unknown),
    ]


def _line(replay: "Replay") -> str:
    """The window over time in one line."""
    many, top = len(replay.requests), max(1, replay.peak)
    columns = [replay.requests[place * many // LINE_COLUMNS] for place in range(LINE_COLUMNS)] if many else []
    return "".join(LEVELS[round(column.tokens * 8 / top)] for column in columns) or "no requests"


async def replay_all(days: int, *, as_json: bool) -> None:
    """Replays the conversations of the last `days` days (0: all) with other thresholds."""
    from crushpy.engine.compaction.replay import Replay, ReplayChanges, replay_session

    changes = [ReplayChanges(), *(ReplayChanges(threshold=threshold) for threshold in THRESHOLDS)]
    settings, models = load_models()
    totals: dict[str, list[Replay]] = {change.label: [] for change in changes}
    async with open_browser() as browser:
        for info in await browser.store.sessions.list_tips():
            if not days or info.updated_at >= time.time() - days * 86_400:
                for replayed in await replay_session(browser.store, info.id, settings, models, changes):
                    totals[replayed.label].append(replayed)
    sums = [_sum(label, found) for label, found in totals.items()]
    base = totals["as recorded"]
    unknown = _unknown(replayed for found in totals.values() for replayed in found)
    now, *others = sums
    span = f"the last {days} days" if days else "all days"
    tokens, cost = f"{now['input_tokens']:,} input tokens", f"${now['cost']:.2f}"
    figures = f"{counted(now['compactions'], 'compaction')}, {tokens}, {cost}"
    lines = [f"{counted(len(base), 'conversation')} of {span}: {figures} with the recorded settings."]
    lines += [f"{other['label']} would have {_difference(now, other)}" for other in others] if base else []
    told = {"conversations": len(base), "days": days, "replays": sums}
    print_either(as_json, told | {"unknown": [text.strip() for text in unknown[2:]]}, [*lines, *unknown])


def _sum(label: str, found: "Sequence[Replay]") -> dict[str, Any]:
    return {
        "label": label,
        "compactions": sum(len(replayed.boundaries) for replayed in found),
        "input_tokens": sum(replayed.usage.total - replayed.usage.output_tokens for replayed in found),
        "cost": round(sum(replayed.usage.cost for replayed in found), 6),
    }


def _difference(now: "Mapping[str, Any]", other: "Mapping[str, Any]") -> str:
    verb, figure = ("cost", "cost") if now["cost"] else ("read", "input_tokens")
    share = round((other[figure] - now[figure]) * 100 / now[figure]) if now[figure] else 0
    money = f"{verb} {abs(share)}% {'more' if share > 0 else 'less'}" if share else f"{verb} the same"
    more = other["compactions"] - now["compactions"]
    times = f"{counted(abs(more), 'time')} {'more' if more > 0 else 'less'}" if more else "as often"
    return f"{money} and compacted {times}"
