"""Commands about the context: compaction method, compaction, pins, rules, template, undo, inspector, cost."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from crushpy.core.errors import CrushpyError
from crushpy.core.events import PromptCommitted
from crushpy.core.messages import shortened
from crushpy.engine.compaction.draft import Rehearsal
from crushpy.tui.actions.command_group import CommandGroup, RefusedCommand
from crushpy.tui.items import ToolItem, TranscriptItem
from crushpy.tui.screens.choose import Choice
from crushpy.util.spawn import spawn

if TYPE_CHECKING:
    from crushpy.context.carried import PinView
    from crushpy.engine.compaction.pins_and_rules import PinService

MAX_PIN_CHARS_SHOWN = 600
"""Characters of a pin that are shown before it is unpinned."""
PIN_USAGE = (
    "/pin TEXT pins text, /pin @FILE a file; p pins a message in the transcript (Tab) or the inspector."
)
MAX_DAYS_DIGITS = 5
MAX_CHART_COLUMNS, MIN_CHART_COLUMNS = 90, 24
NOTICE_MARGIN_COLUMNS = 6


class ContextCommands(CommandGroup):
    async def pin(self, argument: str) -> None:
        """Pins text, or a file if its name is preceded by @."""
        wanted = argument.strip()
        if not self.conversation.history:  # pins belong to a stored conversation
            sent = asyncio.Event()
            self.conversation.subscribe(
                lambda event: sent.set() if isinstance(event, PromptCommitted) else None
            )
            self.say("It will be pinned with your first prompt.")
            await sent.wait()
        if wanted.startswith("@"):
            self.say(await self._pin(lambda board: board.add_file(wanted[1:].strip().strip("'\""))))
        else:
            self.say(await self._pin(lambda board: board.add_text(wanted)))

    async def pin_item(self, item: TranscriptItem, message_id: str) -> None:
        """Pins the message that an item shows: of a call, its result."""
        if isinstance(item, ToolItem):
            history = self.conversation.history
            results = {message.result.call_id: message.id for message in history if message.result}
            message_id = results.get(item.id, "")
        if not message_id:
            raise RefusedCommand("Not pinned: this message is not stored.", "Wait until it is complete.")
        self.say(await self._pin(lambda board: board.add_message(message_id)))

    async def _pin(self, add: "Callable[[PinService], Awaitable[PinView]]") -> str:
        """Pins something; returns the message for the user."""
        board = self.conversation.pins
        try:
            added = await add(board)
            await self.conversation.context.count_exactly()
            listed = await board.listed()
        except CrushpyError as error:
            raise RefusedCommand(f"Not pinned: {error}") from None
        what = added.name or "your text"
        used = f"Pins use {listed.tokens:,} of {listed.limit:,} tokens (/pins)."
        return f"Pinned as {added.number}: {what}. Every compaction carries it verbatim. {used}"

    async def pins(self, argument: str) -> None:
        if not self.conversation.history:
            self.say("Nothing is pinned yet: what you pin now is pinned with your first prompt.")
            return
        board = self.conversation.pins
        await self.conversation.context.count_exactly()
        listed = await board.listed()
        if not listed.pins:
            self.say(f"Nothing is pinned. {PIN_USAGE}")
            return
        pins = {str(pin.number): pin for pin in listed.pins}
        choices = [Choice(number, _title(pin), f"{pin.tokens:,} tokens") for number, pin in pins.items()]
        title = f"Pins: {listed.tokens:,} of {listed.limit:,} tokens"
        pin = pins.get(await self.choose(title, choices, "Enter shows a pin and offers to unpin it") or "")
        if pin is None:
            return
        choices = [Choice("keep", "Keep it"), Choice("unpin", "Unpin it", "compaction no longer carries it")]
        text = pin.text if len(pin.text) <= MAX_PIN_CHARS_SHOWN else pin.text[:MAX_PIN_CHARS_SHOWN] + "…"
        if await self.choose(_title(pin), choices, text) == "unpin":
            await board.remove(pin.number)
            self.say(f"Unpinned {pin.number}. Compaction no longer carries it.")

    async def rules(self, argument: str) -> None:
        """Adds a standing rule, drops one by its number, or lists them, to pin or drop one."""
        service = self.conversation.rules
        if number := re.fullmatch(r"drop +(\d+)", argument.strip()):
            await service.drop(int(number[1]))
            return
        if argument.strip():
            added = await service.add(argument)
            self.say(f"Standing rule {added.number} added. Every compaction carries it verbatim.")
            return
        listed = await service.listed()
        addable = dict.fromkeys(listed.unconfirmed, "add it")
        addable |= {rule.text: listed.state(rule) for rule in listed.guessed_ends}
        if not listed.valid and not addable:
            self.say("There are no standing rules yet: /rules TEXT adds one.")
            return
        title = f"Standing rules: {listed.tokens:,} of {listed.limit:,} tokens"
        title += f", {listed.left_out:,} do not fit" if listed.left_out else ""
        rules = {str(rule.number): rule for rule in listed.valid}
        choices = [
            Choice(number, f"{number} {_line(rule.text)}", listed.state(rule))
            for number, rule in rules.items()
        ]
        choices += [Choice(text, f"? {_line(text)}", state) for text, state in addable.items()]
        hint = "Enter offers to pin or drop a rule"
        hint += f". {listed.offer}: Enter adds one" if listed.offer else ""
        chosen = await self.choose(title, choices, hint) or ""
        if chosen in addable:
            await self.rules(chosen)
        rule = rules.get(chosen)
        if rule is None:
            return
        choices = [
            Choice("keep", "Keep it"),
            Choice("pin", "Pin it", "beside the other pins, whatever their number"),
            Choice("drop", "Drop it", "the agent is told that it no longer applies"),
        ]
        what = await self.choose(f"Standing rule {rule.number}", choices, rule.text[:MAX_PIN_CHARS_SHOWN])
        if what == "pin":
            self.say(await self._pin(lambda board: board.add_text(rule.text)))
        elif what == "drop":
            await service.drop(rule.number)

    async def end_rule(self, argument: str) -> None:
        """Ends the rule that the last notice names; the next time, that of the notice before it."""
        numbers = {rule.text: rule.number for rule in (await self.conversation.rules.listed()).valid}
        offered = self.chat.offered_ends
        if not offered:
            raise RefusedCommand("No notice names a rule: /rules lists all.")
        text = offered.pop()
        offered[:] = (other for other in offered if other != text)
        if text not in numbers:
            raise RefusedCommand(f"This rule does not apply any more: {_line(text)}")
        await self.conversation.rules.drop(numbers[text])

    async def select_compaction(self, argument: str) -> None:
        """Selects who decides when to compact; applies from the next request, and is saved."""
        current, hint = self.conversation.info.compaction, "Applies from the next request, and is saved"
        chosen = await self.choose_value("select_compaction", argument, current, hint)
        if chosen is not None:
            costs = await self.conversation.choices.select_compaction(chosen.value)
            if self.chat.options.compaction:  # it holds for this process
                self.chat.options = msgspec.structs.replace(self.chat.options, compaction=chosen.value)
            held = "Saved: it also holds for later conversations."
            self.say(f"Compaction method: {chosen.value} ({chosen.help}). {held} {costs}".strip())

    async def compact(self, argument: str) -> None:
        self.require_idle()
        await self.conversation.context.compact(argument.strip(), review=True)

    async def handoff(self, argument: str) -> bool:
        return await self.conversation.context.compact(summary=argument.strip())

    async def branch(self, argument: str) -> bool:
        opened = await self.conversation.context.open_branch(argument.strip())
        if opened:
            self.conversation.submit(argument.strip())
        return opened

    async def return_to_parent(self, argument: str) -> bool:
        return await self.conversation.context.return_to_parent(argument)

    async def ask_aside(self, argument: str) -> None:
        """The answer opens in the transcript. Nothing waits for it."""
        spawn(self.conversation.context.ask_aside(argument.strip()))

    async def undo_compaction(self, argument: str) -> None:
        """Says what it would undo, and asks."""
        from crushpy.engine.session.tree import undoable_words

        if not self.conversation.history:
            raise RefusedCommand("There is no compaction to undo yet.")
        boundary = await self.conversation.context.find_undoable()
        choices = [Choice("undo", f"Undo {undoable_words(boundary)}"), Choice("keep", "Keep it")]
        hint = "What came after it stays in the session tree; files are not touched"
        if await self.choose("Undo compaction", choices, hint) == "undo":
            await self.undo_compaction_of(boundary.id)

    async def undo_compaction_of(self, boundary_id: str) -> None:
        from crushpy.context.edits import thoughts_left_behind

        lost, depth = thoughts_left_behind(self.conversation.history), len(self.conversation.session.branches)
        if await self.conversation.context.undo_compaction(boundary_id):
            await self.chat.show_history(self.conversation)
            more = len(self.conversation.session.branches) - depth
            what = "Return" if more > 0 else "Branch" if more < 0 else "Compaction"
            lost = lost if what == "Compaction" else ""
            self.say(f"{what} undone. What came after it stays in the session tree (/tree). {lost}".strip())

    async def inspect(self, argument: str) -> None:
        from crushpy.context.edits import DONE, edits_from, effect_words
        from crushpy.tui.screens.inspector import ContextControls, InspectorScreen

        conversation = self.conversation
        before, read = conversation.session.sent_states, conversation.context.inspect

        async def count() -> None:
            await conversation.context.count_exactly()
            self.chat.status.refresh()  # the gauge shows the same figures

        wanted = conversation.settings.compaction
        thresholds = {"fallback": wanted.fallback_threshold}
        if not isinstance(wanted.threshold, str):
            thresholds["auto"] = wanted.threshold
        controls = ContextControls(
            lambda message_id: self._pin(lambda board: board.add_message(message_id)),
            conversation.context.edit,
            lambda: conversation.sessions.requests(conversation.info.id),
            lambda: self.rules(""),
            count,
        )
        method = conversation.info.compaction
        done = ""
        if argument.partition(" ")[0] in DONE:
            await count()
            done = f"Done: {effect_words(await conversation.context.edit(edits_from(argument)))}."
        else:
            await self.show(InspectorScreen(read, method, thresholds, controls, argument))
        if conversation.session.sent_states != before:
            await self.chat.show_history(conversation)
        if done:
            self.say(done)

    async def show_cost(self, argument: str) -> None:
        """Usage and cost of this conversation, its forecast, and the usage of the last days."""
        from crushpy.engine.session.usage_report import REPORT_DAYS, cost_report, usage_chart, usage_report

        conversation, wanted = self.conversation, argument.strip() or str(REPORT_DAYS)
        if not (wanted.isdecimal() and len(wanted) <= MAX_DAYS_DIGITS):
            raise RefusedCommand(f"{wanted!r} is not a number of days. Try /cost 7, or /cost 0 for all.")
        await conversation.context.count_exactly()
        here = cost_report(conversation.usage, conversation.context.forecast())
        try:
            report = await usage_report(conversation.sessions.store, int(wanted))
        except CrushpyError as error:
            told = "\n".join([*here, f"The usage of other days could not be read: {error}"])
            raise RefusedCommand(told) from None
        room = self.chat.transcript.size.width - NOTICE_MARGIN_COLUMNS
        width = min(MAX_CHART_COLUMNS, max(MIN_CHART_COLUMNS, room))
        await self.show_panel("Cost", "\n".join([*here, "", *usage_chart(report, width)]))

    async def edit_template(self, argument: str) -> None:
        from crushpy.core.templates import Template
        from crushpy.tui.screens.template import TemplateScreen

        conversation = self.conversation

        async def preview(text: str) -> Rehearsal | None:
            template = Template("summary", "the edited template", "file", text)
            return await conversation.context.rehearse(template=template)

        await self.show(TemplateScreen(conversation.templates, preview))


def _title(pin: "PinView") -> str:
    words = f"({pin.problem})" if pin.problem else pin.text
    return f"{pin.number} {pin.kind}: {_line(f'{pin.name} {words}')}"


def _line(text: str) -> str:
    return shortened(" ".join(text.split()), 80)
