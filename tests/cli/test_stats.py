"""`crushpy stats`: what was used, by day, model, project and conversation."""

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from scripted_llm import Reply, ScriptedLLM
from support.command import Cli
from support.headless import MODEL, Run

from crushpy.core.messages import Usage
from crushpy.engine.session.usage_report import UsageReport, UsageShare, bars, usage_chart

DAY = 86_400


@pytest.fixture
def priced(home: Path) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    prices = "context_window = 20000\ninput_cost = 2.0\noutput_cost = 10.0\n"
    (home / "config.toml").write_text(f'[models."{MODEL}"]\n{prices}')


def stats(cli: Cli, *args: str) -> dict[str, Any]:
    done = cli("stats", "--json", *args)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def total(share: dict[str, Any]) -> int:
    return sum(value for name, value in share["usage"].items() if name != "cost")


def earlier(home: Path, session_id: str, days: int) -> None:
    """Has a session be one of some days ago."""
    with closing(sqlite3.connect(home / "crushpy.db")) as database, database:
        for table, column, of in (
            ("message", "created_at", "session_id"),
            ("session", "updated_at", "id"),
            ("conversation", "updated_at", "root_id"),
        ):
            database.execute(
                f"UPDATE {table} SET {column} = {column} - ? WHERE {of} = ?", (days * DAY, session_id)
            )


@pytest.mark.usefixtures("priced")
def test_tokens_and_money_are_told_by_day_model_project_and_conversation(
    run: Run, cli: Cli, llm: ScriptedLLM, home: Path, workspace: Path
) -> None:
    llm.script(Reply("One.", usage=Usage(13_000, 100)), Reply("Two.", usage=Usage(1_000, 10)))
    first = run("the first matter").result["session_id"]
    second = run("the second matter").result["session_id"]
    earlier(home, first, 3)
    found = stats(cli)
    ago, today = (time.strftime("%Y-%m-%d", time.localtime(time.time() - days * DAY)) for days in (3, 0))
    assert [(row["key"], total(row)) for row in found["by_day"]] == [(ago, 13_100), (today, 1_010)]
    assert [(row["key"], total(row)) for row in found["by_model"]] == [(MODEL, 14_110)]
    assert [(row["key"], total(row)) for row in found["by_project"]] == [(str(workspace), 14_110)]
    assert [(row["key"], total(row)) for row in found["by_conversation"]] == [
        (first, 13_100),
        (second, 1_010),
    ]
    assert round(found["total"]["cost"], 9) == 0.0291
    shown = cli("stats").stdout
    for words in (
        "14,110 tokens, $0.0291 (the last 30 days)",
        ago,
        today,
        MODEL,
        "the first matter",
        "$0.0270",
    ):
        assert words in shown
    assert "█" in shown


@pytest.mark.slow
@pytest.mark.usefixtures("priced")
def test_days_leaves_out_what_lies_before(run: Run, cli: Cli, llm: ScriptedLLM, home: Path) -> None:
    llm.script(Reply("One.", usage=Usage(13_000, 100)), Reply("Two.", usage=Usage(1_000, 10)))
    first = run("long ago").result["session_id"]
    second = run("now").result["session_id"]
    earlier(home, first, 40)
    assert [row["key"] for row in stats(cli)["by_conversation"]] == [second]
    assert [row["key"] for row in stats(cli, "--days", "1")["by_conversation"]] == [second]
    assert [row["key"] for row in stats(cli, "--days", "41")["by_conversation"]] == [first, second]
    assert [row["key"] for row in stats(cli, "--days", "0")["by_conversation"]] == [first, second]
    assert cli("stats", "--days", "-1").returncode == 2


def test_calls_without_a_message_are_counted_once(run: Run, cli: Cli, llm: ScriptedLLM, home: Path) -> None:
    llm.script(Reply("One.", usage=Usage(1_000, 10)))
    run("a matter")
    with closing(sqlite3.connect(home / "crushpy.db")) as database, database:
        database.execute("UPDATE session SET input_tokens = input_tokens + 500, cost = cost + 0.5")
    found = stats(cli)
    assert [total(row) for row in found["by_day"]] == [1_510]
    assert found["total"]["cost"] == 0.5


def test_an_empty_database_says_so(cli: Cli) -> None:
    assert cli("stats").stdout == (
        "Nothing was used yet (the last 30 days). crushpy stats --days 0 counts all days.\n"
    )
    assert cli("stats", "--days", "0").stdout == "Nothing was used yet (all days).\n"
    assert stats(cli)["by_day"] == []


def test_stats_ignore_deleted_conversations(run: Run, cli: Cli, llm: ScriptedLLM) -> None:
    llm.script(Reply("One.", usage=Usage(1_000, 10)))
    session = run("a matter").result["session_id"]
    assert cli("sessions", "delete", session, "--yes").returncode == 0
    assert stats(cli)["total"]["input_tokens"] == 0


# --- drawing -----------------------------------------------------------------------------------------------


def test_bars_are_as_long_as_their_share_and_never_wider_than_asked() -> None:
    names = ("日本語の題名がとても長い場合にはどうなるか", "short", "x" * 200, "none")
    shares = [
        UsageShare(str(at), name, Usage(tokens, cost=cost))
        for at, (name, tokens, cost) in enumerate(zip(names, (1_000, 500, 1, 0), (1.5, 0, 0, 0), strict=True))
    ]
    lines = bars(shares, 60)
    assert lines[0].count("█") == 2 * lines[1].count("█")
    assert "▏" in lines[2]
    assert not set("█▏▎▍▌▋▊▉") & set(lines[3])
    assert all(len(line) <= 60 for line in lines)
    assert "$1.50" in lines[0]


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_stats_draw_bars_for_the_largest_and_count_the_others(width: int) -> None:
    shares = tuple(UsageShare(f"m{at}", f"m{at}", Usage(100 - at)) for at in range(14))
    report = UsageReport(30, Usage(1_000), shares[:1], shares, shares, shares)
    lines = usage_chart(report, width)
    assert lines.count("  and 4 more") == 3
    assert sum("m13" in line for line in lines) == 0
