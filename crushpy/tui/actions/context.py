"""Commands about the context: compaction method, compaction, pins, template, undo, inspector, cost."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from crushpy.core.errors import CrushpyError
from crushpy.core.messages import Message
from crushpy.engine.compaction.draft import Rehearsal
from crushpy.tui.actions.action_registry import performs
from crushpy.tui.items import ReplyItem, ToolItem, TranscriptItem, UserItem

if TYPE_CHECKING:
    from crushpy.engine.compaction.pin_service import PinService, PinView
    from crushpy.tui.screens.chat_host import ChatHost

MAX_PIN_CHARS_SHOWN = 600
"""Characters of a pin that are shown before it is unpinned."""
PIN_USAGE = (
    "/pin TEXT pins text, /pin @FILE a file; p pins a message in the transcript (Tab) or the inspector."
)


@performs("pin")
async def pin_something(chat: "ChatHost", argument: str) -> None:
    """Pins text, or a file if its name is preceded by @."""
    wanted = argument.strip()
    if not wanted:
        chat.say(f"There is nothing to pin. {PIN_USAGE}", warning=True)
    elif wanted.startswith("@"):
        await _pin(chat, lambda board: board.add_file(wanted[1:].strip().strip("'\"")))
    else:
        await _pin(chat, lambda board: board.add_text(wanted))


async def pin_item(chat: "ChatHost", item: TranscriptItem) -> None:
    """Pins the message shown by an item of the transcript."""
    await _pin(chat, lambda board: board.add_shown(shows(item)))


def shows(item: TranscriptItem) -> Callable[[Message], bool]:
    """Recognizes the message that an item shows; messages with the same text are the same pin."""
    match item:
        case UserItem():
            return lambda message: message.role == "user" and message.text == item.text
        case ReplyItem():
            return lambda message: message.role == "assistant" and message.text.strip() == item.text.strip()
        case ToolItem():
            return lambda message: message.result is not None and message.result.call_id == item.id
        case _:
            return lambda message: False


async def _pin(chat: "ChatHost", add: "Callable[[PinService], Awaitable[PinView]]") -> None:
    warning, text = await pinned_words(chat.open_conversation.pins, add)
    chat.say(text, warning=warning)


async def pinned_words(
    board: "PinService", add: "Callable[[PinService], Awaitable[PinView]]"
) -> tuple[bool, str]:
    """Pins something; returns whether that failed, and the message for the user."""
    try:
        added, listed = await add(board), await board.listed()
    except CrushpyError as error:
        return True, f"Not pinned: {error}"
    what = added.name or "your text"
    used = f"Pins use {listed.tokens:,} of {listed.limit:,} tokens (/pins)."
    return False, f"Pinned as {added.number}: {what}. Every compaction carries it verbatim. {used}"


@performs("pins")
async def show_pins(chat: "ChatHost", argument: str) -> None:
    """Lists the pins; a chosen one is shown and can be unpinned."""
    from crushpy.tui.screens.choose import Choice, ChooseScreen

    board = chat.open_conversation.pins
    await chat.open_conversation.context.count_exactly()
    listed = await board.listed()
    if not listed.pins:
        chat.say(f"Nothing is pinned. {PIN_USAGE}")
        return
    choices = [Choice(str(pin.number), _title(pin), f"{pin.tokens:,} tokens") for pin in listed.pins]
    title = f"Pins: {listed.tokens:,} of {listed.limit:,} tokens"
    taken = await chat.show(ChooseScreen(title, choices, hint="Enter shows a pin and offers to unpin it"))
    pin = next((one for one in listed.pins if str(one.number) == taken), None)
    if pin is None or not await _wants_unpinned(chat, pin):
        return
    await board.remove(pin.number)
    chat.say(f"Unpinned {pin.number}. Compaction no longer carries it.")


async def _wants_unpinned(chat: "ChatHost", pin: "PinView") -> bool:
    from crushpy.tui.screens.choose import Choice, ChooseScreen

    choices = [Choice("keep", "Keep it"), Choice("unpin", "Unpin it", "compaction no longer carries it")]
    text = pin.text if len(pin.text) <= MAX_PIN_CHARS_SHOWN else pin.text[:MAX_PIN_CHARS_SHOWN] + "…"
    return await chat.show(ChooseScreen(_title(pin), choices, hint=text)) == "unpin"


def _title(pin: "PinView") -> str:
    words = f"({pin.problem})" if pin.problem else pin.text
    said = " ".join(filter(None, (pin.name, words)))
    line = " ".join(said.split())
    return f"{pin.number} {pin.kind}: {line if len(line) <= 80 else line[:79] + '…'}"


MAX_DAYS_DIGITS = 5
MAX_CHART_COLUMNS, MIN_CHART_COLUMNS = 90, 24
NOTICE_MARGIN_COLUMNS = 6
METHODS = {"auto": "crushpy decides", "llm": "the model decides"}


@performs("select_compaction")
async def select_compaction_method(chat: "ChatHost", argument: str) -> None:
    """Selects who decides when to compact; applies from the next request, and is saved."""
    conversation = chat.open_conversation
    method: str | None = argument.strip().lower()
    if not method:
        from crushpy.tui.screens.choose import Choice, ChooseScreen

        current = conversation.info.compaction
        choices = [
            Choice(name, {"auto": "Auto", "llm": "LLM"}[name], detail, name == current)
            for name, detail in METHODS.items()
        ]
        hint = "Applies from the next request, and is saved"
        method = await chat.show(ChooseScreen("Select Compaction Method", choices, hint=hint))
    if method is None:
        return
    if method not in METHODS:
        chat.say(f"{method!r} is not a compaction method. Choose auto or llm.", warning=True)
        return
    await conversation.select_compaction(method)
    chat.status.refresh()
    chat.say(f"Compaction method: {method} ({METHODS[method]}).")


@performs("compact")
async def compact_now(chat: "ChatHost", argument: str) -> None:
    """Compacts now; the summary is shown for review first."""
    await chat.open_conversation.context.compact(argument.strip(), review=True)
    chat.status.refresh()


@performs("handoff")
async def hand_off(chat: "ChatHost", argument: str) -> None:
    if not argument.strip():
        raise CrushpyError("The summary is missing.", "Run /handoff with what the next session needs")
    await chat.open_conversation.context.compact(summary=argument.strip())
    chat.status.refresh()


@performs("undo_boundary")
async def undo_last_boundary(chat: "ChatHost", argument: str) -> None:
    conversation = chat.open_conversation
    if await conversation.context.undo():
        await chat.show_history(conversation)
        chat.status.refresh()
        chat.say("Compaction undone. What came after it stays as a branch (/lineage).")


@performs("inspect")
async def inspect_context(chat: "ChatHost", argument: str) -> None:
    conversation = chat.open_conversation
    from crushpy.tui.screens.inspector import ContextControls, InspectorScreen

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
            controls=ContextControls(
                pin, conversation.context.edit, lambda: conversation.sessions.requests(conversation.info.id)
            ),
        )
    )
    if conversation.sent_states != before:
        await chat.show_history(conversation)
        chat.status.refresh()


@performs("show_cost")
async def show_cost(chat: "ChatHost", argument: str) -> None:
    """Usage and cost of this conversation, its forecast, and the usage of the last days."""
    conversation = chat.open_conversation
    from crushpy.engine.session.usage_report import REPORT_DAYS, cost_report, usage_chart

    wanted = argument.strip() or str(REPORT_DAYS)
    if not (wanted.isdecimal() and len(wanted) <= MAX_DAYS_DIGITS):
        chat.say(f"{wanted!r} is not a number of days. Try /cost 7, or /cost 0 for all.", warning=True)
        return
    await conversation.context.count_exactly()
    here = cost_report(conversation.usage, conversation.context.forecast())
    try:
        report = await conversation.sessions.usage_report(int(wanted))
    except CrushpyError as error:
        chat.say("\n".join([*here, f"The usage of other days could not be read: {error}"]), warning=True)
        return
    width = min(MAX_CHART_COLUMNS, max(MIN_CHART_COLUMNS, chat.transcript.size.width - NOTICE_MARGIN_COLUMNS))
    chat.say("\n".join([*here, "", *usage_chart(report, width)]))


@performs("edit_template")
async def edit_summary_template(chat: "ChatHost", argument: str) -> None:
    conversation = chat.open_conversation
    from crushpy.core.templates import Template
    from crushpy.tui.screens.template import TemplateScreen

    async def preview(text: str) -> Rehearsal | None:
        return await conversation.context.rehearse(
            template=Template("summary", "the edited template", "file", text)
        )

    await chat.show(TemplateScreen(conversation.templates, preview))
