"""`crushpy stats`: tokens and cost by day, model, project and conversation."""

import shutil
from typing import Annotated

import typer

from crushpy.cli.command_helpers import (
    AsJson,
    add_command,
    argument,
    open_store,
    option,
    print_either,
)
from crushpy.cli.session_hindsight import hindsight_of_all
from crushpy.cli.session_replay import replay_all
from crushpy.core.errors import UsageError

MAX_WIDTH_CHARS = 100

Days = Annotated[int, option("--days", "The last N days; 0 counts all.", metavar="N", min=0, max=99_999)]


def register(app: typer.Typer) -> None:
    add_command(app, "stats", stats_command)


async def stats_command(
    days: Days = 30,
    replay: Annotated[
        bool, option("--replay", "Replay the conversations of DAYS with other thresholds.")
    ] = False,
    replayed: Annotated[
        int | None, argument("With --replay; 0: all days.", metavar="[DAYS]", min=0, max=99_999)
    ] = None,
    hindsight: Annotated[
        bool, option("--hindsight", "What was needed after compactions, and had been carried.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show tokens and cost by day, model, project and conversation."""
    from crushpy.engine.session.usage_report import usage_chart, usage_report

    if replayed is not None and not replay:
        raise UsageError("DAYS belongs to --replay", f"Use --days {replayed}.")
    if hindsight:
        await hindsight_of_all(as_json=as_json)
        return
    if replay:
        await replay_all(days if replayed is None else replayed, as_json=as_json)
        return
    async with open_store() as store:
        report = await usage_report(store, days)
    width = min(MAX_WIDTH_CHARS, shutil.get_terminal_size().columns)
    print_either(as_json, report, usage_chart(report, width))
