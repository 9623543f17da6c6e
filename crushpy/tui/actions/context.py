"""Commands about the context: method, compacting, template, undo, inspector."""

from crushpy.core.errors import CrushpyError
from crushpy.engine.compaction.boundary_record import Rehearsal
from crushpy.tui.actions.host import CommandHost, performs
from crushpy.tui.actions.pins import pinned_words

LONGEST_DAYS = 5
"""Digits of a number of days."""
WIDEST_CHART, NARROWEST_CHART = 90, 24
AROUND_NOTICE = 6
"""Columns that a notice has not for itself."""
METHODS = {"auto": "crushpy decides", "llm": "the model decides"}


@performs("select_compaction")
async def select_compaction_method(chat: CommandHost, argument: str) -> None:
    """Who decides when to start afresh; holds for the very next request, and is saved."""
    conversation = chat.conversation
    if conversation is None:
        return
    method: str | None = argument.strip().lower()
    if not method:
        from crushpy.tui.screens.choose import Choice, ChooseScreen

        current = conversation.info.compaction
        choices = [
            Choice(name, {"auto": "Auto", "llm": "LLM"}[name], detail, name == current)
            for name, detail in METHODS.items()
        ]
        hint = "Holds from the next request on, and is remembered."
        method = await chat.show(ChooseScreen("Select Compaction Method", choices, hint=hint))
    if method is None:
        return
    if method not in METHODS:
        chat.say(f"{method!r} is no compaction method; there are auto and llm.", warning=True)
        return
    try:
        await conversation.select_compaction(method)
    except CrushpyError as error:
        chat.say(f"The compaction method was not changed: {error}", warning=True)
        return
    chat.status.refresh()
    chat.say(f"Compaction method: {method} ({METHODS[method]}).")


@performs("compact")
async def compact_now(chat: CommandHost, argument: str) -> None:
    """Starts afresh now; the summary is shown first."""
    if chat.conversation is not None:
        await chat.conversation.context.compact(argument.strip(), review=True)
        chat.status.refresh()


@performs("handoff")
async def hand_off(chat: CommandHost, argument: str) -> None:
    if not argument.strip():
        chat.say("Write the summary after the command: /handoff what the next session needs.", warning=True)
    elif chat.conversation is not None:
        await chat.conversation.context.compact(summary=argument.strip())
        chat.status.refresh()


@performs("undo_boundary")
async def undo_last_boundary(chat: CommandHost, argument: str) -> None:
    conversation = chat.conversation
    if conversation is not None and await conversation.context.undo():
        await chat.show_history(conversation)
        chat.status.refresh()
        chat.say("The fresh start is undone: what came after it stays as a branch (/lineage).")


@performs("inspect")
async def inspect_context(chat: CommandHost, argument: str) -> None:
    conversation = chat.conversation
    if conversation is None:
        return
    from crushpy.tui.screens.inspector import InspectorScreen

    await conversation.context.count_exactly()
    wanted = conversation.settings.compaction
    thresholds = {"fallback": wanted.fallback_threshold}
    if not isinstance(wanted.threshold, str):
        thresholds["auto"] = wanted.threshold

    async def pin(message_id: str) -> str:
        return (await pinned_words(conversation.pins, lambda board: board.add_message(message_id)))[1]

    before = conversation.sent_states
    await chat.show(
        InspectorScreen(
            conversation.context.inspect,
            conversation.info.compaction,
            thresholds=thresholds,
            pin=pin,
            edit=conversation.context.edit,
            requests=lambda: conversation.library.requests(conversation.info.id),
        )
    )
    if conversation.sent_states != before:
        await chat.show_history(conversation)
        chat.status.refresh()


@performs("show_cost")
async def show_cost(chat: CommandHost, argument: str) -> None:
    """What the conversation used and cost, what lies ahead, and what all of them used on the last days."""
    conversation = chat.conversation
    if conversation is None:
        return
    from crushpy.engine.session.cost_report import cost_report
    from crushpy.engine.session.usage_chart import usage_chart
    from crushpy.engine.session.usage_report import DAYS

    wanted = argument.strip() or str(DAYS)
    if not (wanted.isdecimal() and len(wanted) <= LONGEST_DAYS):
        chat.say(f"{wanted!r} is no number of days. /cost 7 shows the last seven, /cost 0 all.", warning=True)
        return
    await conversation.context.count_exactly()
    here = cost_report(conversation.usage, conversation.context.forecast())
    try:
        report = await conversation.library.usage_report(int(wanted))
    except CrushpyError as error:
        chat.say("\n".join([*here, f"The figures of other days cannot be read: {error}"]), warning=True)
        return
    width = min(WIDEST_CHART, max(NARROWEST_CHART, chat.transcript.size.width - AROUND_NOTICE))
    chat.say("\n".join([*here, "", *usage_chart(report, width)]))


@performs("edit_template")
async def edit_summary_template(chat: CommandHost, argument: str) -> None:
    conversation = chat.conversation
    if conversation is None:
        return
    from crushpy.core.templates import Template
    from crushpy.tui.screens.template import TemplateScreen

    async def preview(text: str) -> Rehearsal | None:
        return await conversation.context.rehearse(
            template=Template("summary", "the edited template", "file", text)
        )

    await chat.show(TemplateScreen(conversation.templates, preview))
