"""Decides what the demo does next, from the request alone."""

import re

from crushpy.llm.demo import situation as situations
from crushpy.llm.demo.fill import MOST_STEPS, fill
from crushpy.llm.demo.intents import plain, understand
from crushpy.llm.demo.situation import Situation
from crushpy.llm.demo.steps import Ask, Ending, Plan, Step, replay
from crushpy.llm.demo.summary import is_summary_request, of_messages, written_for
from crushpy.llm.demo.words import ASIDE, GUIDE, failed
from crushpy.llm.demo.worklist import items_of, work
from crushpy.llm.protocol import Request

START_AFRESH_AT = 75
"""With `new_session` at hand: how full the window is, in percent, when the demo uses it unasked."""

_NEW_SESSION = re.compile(
    r"(?:(?:start|open|begin|create|make|try|go on in|continue in) )?(?:with )?(?:a |the )?"
    r"(?:new|fresh)[ _](?:session|start|context)\b.*|start (?:over|afresh)\b.*|hand ?off\b.*|compact\b.*",
    re.IGNORECASE | re.DOTALL,
)
_FILL = re.compile(
    r"(?P<verb>fill(?: up)?|use up|overflow) (?:the |your |my |its )?(?:whole )?(?:context )?"
    r"(?:window|context)\b(?:.*?\b(?P<steps>\d+) steps)?.*",
    re.IGNORECASE | re.DOTALL,
)
_GO_ON = re.compile(r"\s*(?:go on|continue|carry on|proceed|keep going)\b.*", re.IGNORECASE | re.DOTALL)
_STOP = re.compile(r"\s*(?:stop|enough|thanks?(?: you)?|bye|ok(?:ay)?|good|great)\b.{0,20}", re.IGNORECASE)
_HELP = re.compile(
    r"\b(?:help|hello|hi|hey|who|what can|connect|real model|api key|tour|demo)\b|^\W*$", re.IGNORECASE
)


def next_step(request: Request, fullness: float) -> Step:
    """What the demo says and does in answer to this request."""
    if is_summary_request(request):
        return Step(written_for(request))
    situation = situations.read_situation(request, fullness)
    outcome = _next(request, situation)
    if isinstance(outcome, Ending):
        aside = f"\n\n{ASIDE}" if _introduce(situation, outcome) else ""
        return Step(outcome.text + aside)
    missing = [call.name for call in outcome.calls if call.name not in situation.tools]
    if missing:
        return Step(f"For this I would use the tool {missing[0]}, and this run does not offer it.")
    return _fresh_start(request, situation) or outcome


def _next(request: Request, situation: Situation) -> Step | Ending:
    prompt = situation.prompt
    if prompt is None:
        return _arrived(situation)
    words = plain(prompt)
    if _NEW_SESSION.fullmatch(words):
        return replay(_new_session(request, situation), [step.results for step in situation.steps])
    filling = _FILL.fullmatch(words)
    if filling:
        overflow = filling["verb"].lower() == "overflow"
        plan = fill(situation, int(filling["steps"] or MOST_STEPS), overflow)
        return replay(plan, _history(situation))
    if _GO_ON.fullmatch(words):
        if not situation.open_todos and not situation.steps:
            return Ending("There is nothing left open here. Say `help` for what I can do.")
        return work(situation, situation.open_todos)
    items = items_of(prompt)
    if items is not None:
        return work(situation, items)
    plan = understand(prompt)
    if plan is not None:
        return replay(plan, _history(situation))
    if _STOP.fullmatch(words):
        return Ending("All right. I am here when you want to try more.")
    return _explain(prompt)


def _history(situation: Situation) -> list[situations.Results]:
    """The results a plan has seen: all but those of a fresh start that was tried in between."""
    return [step.results for step in situation.steps if not step.only("new_session")]


# --- fresh starts --------------------------------------------------------------------------------------


def _fresh_start(request: Request, situation: Situation) -> Step | None:
    """A new session in place of the next step, where the window is filling up and the demo may open one.

    Not where it was refused before, and not in a session that has itself got nowhere yet: the work would
    go round in circles.
    """
    if (situation.used_pct or 0) < START_AFRESH_AT or "new_session" not in situation.tools:
        return None
    if not situation.steps or any(step.only("new_session") for step in situation.steps):
        return None
    completed = any(todo.status == "completed" for todos in situation.lists for todo in todos)
    if situation.prompt is None and not completed:
        return None
    unfinished = situation.prompt or ""
    again = unfinished if understand(unfinished) is not None else ""
    text = f"The window is {situation.used_pct}% full, so I carry on in a new session."
    return Step(text, (Ask("new_session", {"summary": of_messages(request.messages, again)}),))


def _new_session(request: Request, situation: Situation) -> Plan:
    if "new_session" not in situation.tools:
        return Ending(
            "I can open a new session by myself only when the compaction method is `llm`: start crushpy with "
            "--compaction llm, or switch with `/compaction llm` in the app, and ask again. In `auto`, "
            "crushpy does it when the window fills up: say `fill the window` to see that.",
            done=False,
        )
    summary = of_messages(request.messages)
    results = yield Step(
        "I will write down what matters and go on in a new session.",
        (Ask("new_session", {"summary": summary}),),
    )
    return failed(results[0]) if results[0].is_error else Ending("The new session is open.")


def _arrived(situation: Situation) -> Step | Ending:
    """The first words in a session that continues another: the rest of a list, or what was carried over."""
    if situation.open_todos or situation.lists:
        return work(situation, situation.open_todos)
    inside, closed, _ = situation.carried.partition("<summary>")[2].partition("</summary>")
    notes = [line for line in (inside if closed else situation.carried).splitlines() if line.strip()]
    carried = "\n".join(f"> {line}" for line in notes[:12])
    return Ending(
        "This is a new session: the window is nearly empty again, and what mattered came along as notes"
        + (f":\n\n{carried}\n\n" if carried else ". ")
        + "Ask me something about it, or `crushpy sessions list` shows both sessions."
    )


# --- words ---------------------------------------------------------------------------------------------


def _explain(prompt: str) -> Ending:
    if _HELP.search(prompt):
        return Ending(GUIDE)
    return Ending(f"I do not understand that one.\n\n{GUIDE}", done=False)


def _introduce(situation: Situation, ending: Ending) -> bool:
    """Whether to say once, in the first turn of a conversation, what is speaking here."""
    return situation.opening and GUIDE not in ending.text
