"""The line at the end of a turn."""

from types import SimpleNamespace
from typing import Any

from crushpy.core import events
from crushpy.core.messages import Usage
from crushpy.engine.session.timeline import Timeline


def a_timeline() -> tuple[Timeline, Any]:
    session: Any = SimpleNamespace(stored=False, usage=Usage())
    return Timeline(SimpleNamespace(), session), session  # type: ignore[arg-type]


def told(timeline: Timeline, *happened: events.Event) -> list[str]:
    return [note.text for event in happened if (note := timeline.note(event)) is not None]


def a_turn(session: Any, status: str, *, reported: bool) -> list[events.Event]:
    used = Usage(900, 100)
    session.usage += used
    reply = events.MessageCommitted("m", ("text",), "model", interrupted=not reported)
    report = [events.UsageReported(used, session.usage)] if reported else []
    return [reply, *report, events.TurnEnded(status)]  # type: ignore[arg-type]


def test_a_partial_reply_counts_although_it_reports_nothing() -> None:
    timeline, session = a_timeline()
    timeline.note(events.PromptCommitted("p", "go"))
    assert told(timeline, *a_turn(session, "interrupted", reported=False)) == [
        "Interrupted. <1 s · 1 step · 1.0k tokens"
    ]


def test_an_error_before_a_turn_begins_repeats_no_figures() -> None:
    timeline, session = a_timeline()
    timeline.note(events.PromptCommitted("p", "go"))
    assert told(timeline, *a_turn(session, "done", reported=True)) == ["<1 s · 1 step · 1.0k tokens"]
    full = events.Error("storage", "the disk is full")
    assert told(timeline, full, events.TurnEnded("error")) == ["the disk is full"]
