"""What the chat does when the engine reports an event: panels, queue, window title, attention."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from crushpy.core import events
from crushpy.core.app_commands import BY_ACTION
from crushpy.tui.notify import call_attention, set_title
from crushpy.tui.textual_adapter import app_of
from crushpy.tui.widgets.prompt_queue import QueuedPrompt

if TYPE_CHECKING:
    from collections.abc import Callable

    from crushpy.engine.approvals import Answer
    from crushpy.tui.screens.chat_host import ChatHost
    from crushpy.tui.widgets.approval import ApprovalPanel


class ChatEvents:
    """Passes every event to the presenters of one chat screen, and opens and closes its panels."""

    def __init__(self, chat: "ChatHost") -> None:
        self._chat = chat
        self._more_to_ask = False

    def hear(self, event: events.Event) -> None:
        """Called for every event of the engine, in order."""
        chat = self._chat
        talking = chat.feed.talking
        chat.feed.hear(event)
        chat.status.hear(event)
        chat.activity.hear(event)
        if chat.feed.talking != talking:
            self.show_queue()
        if type(event) is events.TextDelta:
            return
        match event:
            case events.ApprovalNeeded():
                self._ask(event)
            case events.ApprovalDone():
                chat.remove_class("-asking", update=False)  # no style depends on it
                if self._more_to_ask and event.answer == "once":
                    chat.prompt.ignore_for_now("y")
                chat.set_focus(chat.prompt)  # first: else the focus would pass through the transcript
                chat.query("ApprovalPanel").remove()
            case events.ReviewNeeded():
                chat.run_worker(self._review(event))
            case events.PlanReady():
                self.offer_plan()
                call_attention(app_of(chat), "crushpy has a plan")
            case events.ModeChanged() if event.mode != "plan":
                self.drop_plan()
            case events.PromptQueued() | events.PromptCommitted():
                chat.greeter.end_card()
                self.drop_plan()
                has_draft = chat.prompt.draft or chat.attachments.images
                if chat.conversation and not chat.conversation.busy and not has_draft:
                    chat.return_queue()  # a prompt was not answered
                self.show_queue()
                self._name_window()
            case events.TurnEnded():
                self.show_queue(waiting=event.status != "done")
                self._name_window(busy=False)
                if event.status != "interrupted":
                    call_attention(app_of(chat), "crushpy is done")
            case events.TitleChanged():
                self._name_window()
            case events.TaskProgress():
                self._refresh_reader(event)
            case events.TodosChanged():
                chat.todos.show(event.todos)
            case events.RuleChanged():
                self._tell_of_rule(event)
            case _:
                pass

    def _tell_of_rule(self, event: events.RuleChanged) -> None:
        """A key ends the rule that the last notice names; one that seems to be replaced is asked about."""
        hint = ""
        if event.action == "found":
            self._chat.offered_ends.append(event.replaces or event.text)
            key = self._chat.command_keys.get("end_rule") or BY_ACTION["end_rule"].key
            hint = f"\n{key.title()} ends {'the earlier one' if event.replaces and event.id else 'it'}."
        self._chat.say(event.words + hint)

    def _ask(self, event: events.ApprovalNeeded) -> None:
        chat = self._chat

        def answer(answer: "Answer") -> None:
            if chat.conversation is not None:
                chat.conversation.answer(event.id, answer)

        chat.add_class("-asking", update=False)
        self._mount(event, chat.keep, answer)
        self._more_to_ask = event.place[0] < event.place[1]
        call_attention(app_of(chat), f"crushpy asks: {event.title}")

    def _mount(
        self,
        question: events.ApprovalNeeded,
        typed: "Callable[[str], None]",
        answer: "Callable[[Answer], None]",
    ) -> "ApprovalPanel":
        from crushpy.tui.widgets.approval import ApprovalPanel

        chat = self._chat
        palette, has_draft = chat.transcript.current_palette, lambda: bool(chat.prompt.draft)
        accesses = [replace(access, value=chat.feed.shorten(access.value)) for access in question.accesses]
        question = replace(question, accesses=tuple(accesses))
        panel = ApprovalPanel(question, palette, has_draft, typed, answer)
        chat.mount(panel, before=chat.strip)
        return panel

    def show_queue(self, *, waiting: bool | None = None) -> None:
        """`waiting`: queued prompts are sent with the next Enter, as always while no turn runs."""
        conversation = self._chat.conversation
        if conversation is not None:
            queued = [
                QueuedPrompt(
                    prompt.id,
                    prompt.text + "".join(f" [{image.name}]" for image in prompt.images),
                    conversation.prompts.is_next(prompt.id),
                )
                for prompt in conversation.prompts.queue
            ]
            waiting = not conversation.busy if waiting is None else waiting
            if not queued and self._chat.queue.has_focus:
                self._chat.focus_controller.return_focus()
            self._chat.queue.show(queued, waiting=waiting, talking=self._chat.feed.talking)

    def _name_window(self, *, busy: bool | None = None) -> None:
        conversation = self._chat.conversation
        if conversation is not None:
            mark = "● " if (conversation.busy if busy is None else busy) else ""
            set_title(app_of(self._chat), f"{mark}{conversation.info.title or 'crushpy'}")

    def offer_plan(self) -> None:
        from crushpy.core.access import AnswerChoice

        chat = self._chat

        def comment(text: str) -> None:
            if text != "\r":
                chat.prompt.focus()
            chat.keep(text)

        def answer(answer: "Answer") -> None:
            if answer.key == "3":
                chat.prompt.focus()
                return
            self.drop_plan()
            if chat.conversation is not None and answer.kind == "once":
                mode = "edits" if answer.key == "2" else "ask"
                chat.run_worker(chat.conversation.prompts.accept_plan(mode))

        self.drop_plan()  # the question about the previous plan may still be there
        choices = (  # no letters: a comment may begin with one
            AnswerChoice("1", "once", "Carry it out, ask before each change"),
            AnswerChoice("2", "once", "Carry it out, and all edits in this conversation (Shift+Tab)"),
            AnswerChoice("3", "deny", "No, and tell the agent what to change"),
        )
        question = events.ApprovalNeeded(
            *("plan", "plan", dict[str, object](), (), "", ""),
            choices=choices,
            title="The plan is ready",
            escape="stays in plan mode",
        )
        self._mount(question, comment, answer).add_class("plan")

    def drop_plan(self) -> None:
        for card in self._chat.query("ApprovalPanel.plan"):
            if card.has_focus:
                self._chat.prompt.focus()
            card.remove()

    def _refresh_reader(self, event: events.TaskProgress) -> None:
        """Refreshes the screen that shows the task's session."""
        from crushpy.tui.screens.session_reader import SessionReaderScreen

        for screen in app_of(self._chat).screen_stack:
            if isinstance(screen, SessionReaderScreen) and screen.session_id == event.session_id:
                screen.refresh_session()

    async def _review(self, event: events.ReviewNeeded) -> None:
        from crushpy.tui.screens.summary_review import ReviewScreen

        verdict = await self._chat.show(ReviewScreen(event, writing=bool(self._chat.prompt.draft)))
        if self._chat.conversation is not None and verdict is not None:
            self._chat.conversation.context.review(event.id, verdict)
