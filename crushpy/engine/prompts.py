"""The prompts of a conversation: each starts a turn, or waits for the running one."""

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from crushpy.context.inspect import kind_of
from crushpy.core.access import Mode
from crushpy.core.app_commands import FORMER_NAMES, by_slash
from crushpy.core.boundary import TurnStatus
from crushpy.core.errors import CrushpyError, UsageError
from crushpy.core.events import Error, Notice, PlanReady, PromptQueued, TurnEnded
from crushpy.core.ids import new_id
from crushpy.core.messages import BlockOrigin, Data, Image, Message, MessageOverride, Note, Text
from crushpy.engine.attachments import Attachments
from crushpy.engine.compaction.pins_and_rules import add_prompt
from crushpy.engine.event_bus import unexpected_error
from crushpy.engine.hooks import HookEvent, HookReply
from crushpy.engine.run_slot import RunSlot
from crushpy.engine.runtime import CommandPrompt, Runtime
from crushpy.engine.session.session import user_message
from crushpy.engine.side_calls import TitleFinder
from crushpy.engine.turn.limits import Spent
from crushpy.engine.user_choices import Choices
from crushpy.storage.records import StorageError
from crushpy.util.uncancellable import uncancellable

log = logging.getLogger(__name__)

MAX_EARLIER_PROMPTS = 200
PLAN_ACCEPTED = "The plan is accepted. Carry it out."
NOT_STORED = (
    "Interrupted before the prompt was stored, while a hook or an attachment was waited for. Send it again."
)
"""Where there is no input that it could go back to. A hook may have wanted to block it."""
_COMMAND = re.compile(r"/(\w[\w:-]*)(?!\S)")


class Submission(Data, frozen=True):
    """A prompt, and what applies to its turn alone."""

    prompt: Message
    mode: Mode | None = None
    model: str = ""
    next_step: bool = False
    """It is sent with the next step of the running turn."""
    typed: str = ""
    """The command that the prompt stands for."""

    @property
    def returned(self) -> Message:
        """What goes back to an input: a command as it was typed, so that it is sent as one again."""
        if not self.typed:
            return self.prompt
        return msgspec.structs.replace(self.prompt, parts=(Text(self.typed), *self.prompt.images))

    @property
    def needs_own_turn(self) -> bool:
        return self.mode is not None or bool(self.model)


class QueuedPrompts:
    """In order of arrival. A delivered prompt is no longer in the queue."""

    def __init__(self, attachments: Attachments) -> None:
        self._attachments = attachments
        self._waiting: dict[str, Submission] = {}
        """By the id of the prompt."""

    @property
    def prompts(self) -> tuple[Message, ...]:
        return tuple(waiting.returned for waiting in self._waiting.values())

    def is_next(self, prompt_id: str) -> bool:
        """Whether it is sent with the next step of the running turn."""
        return prompt_id in self._waiting and self._waiting[prompt_id].next_step

    def add(self, submission: Submission, *, first: bool = False) -> None:
        """`first`: before all others, because it could not be delivered."""
        new = {submission.prompt.id: submission}
        self._waiting = new | self._waiting if first else self._waiting | new

    def send_next(self, prompt_id: str) -> bool | None:
        """Toggles whether a prompt is sent with the next step; None if it is no longer queued. One with its
        own mode or model always waits for the end of the turn."""
        found = self._waiting.get(prompt_id)
        if found is None:
            return None
        next_step = not found.next_step and not found.needs_own_turn
        self._waiting[prompt_id] = msgspec.structs.replace(found, next_step=next_step)
        return next_step

    def remove(self, prompt_id: str) -> Message | None:
        """Removes a prompt and returns it; None if it is no longer queued."""
        found = self._waiting.pop(prompt_id, None)
        if found is None:
            return None
        self._attachments.forget(found.prompt)
        return found.returned

    def pop(self) -> Submission | None:
        """The next one: those meant for a next step first."""
        ordered = sorted(self._waiting, key=lambda prompt_id: not self._waiting[prompt_id].next_step)
        return self._waiting.pop(ordered[0]) if ordered else None

    def clear(self) -> None:
        self._waiting.clear()

    async def deliver(self, add: Callable[[Message], Coroutine[Any, Any, None]]) -> None:
        """Passes the prompts for the next step to `add`, one by one; a prompt that fails stays queued."""
        for prompt_id, submission in [item for item in self._waiting.items() if item[1].next_step]:
            whole = await self._attachments.complete(submission.prompt)
            if self._waiting.get(prompt_id) != submission:
                continue  # removed or postponed meanwhile
            del self._waiting[prompt_id]
            try:
                await uncancellable(add(whole))
            except Exception:
                self.add(msgspec.structs.replace(submission, prompt=whole), first=True)
                raise


class Prompts:
    def __init__(
        self,
        runtime: Runtime,
        run_slot: RunSlot,
        choices: Choices,
        title: TitleFinder,
        between_steps: Callable[[], Coroutine[Any, Any, None]],
        leave_out: Callable[[Sequence[MessageOverride]], Coroutine[Any, Any, None]],
    ) -> None:
        """`between_steps` is awaited after each step and turn, when every call has its result. `leave_out`
        edits the context: a compaction may have carried a prompt that is withdrawn."""
        self._between_steps, self._leave_out = between_steps, leave_out
        scope, services = runtime.scope, runtime.scope.services
        self._runtime, self._run_slot, self._choices, self._title = runtime, run_slot, choices, title
        self._session, self._emit = scope.session, runtime.events
        self._approvals, self._user_settings = services.approvals, services.user_settings
        self.attachments = Attachments(scope)
        self._queue = QueuedPrompts(self.attachments)
        self.is_next, self.send_next = self._queue.is_next, self._queue.send_next
        self.unqueue = self._queue.remove
        self.hooks_started = self._closed = self._sends_now = False
        self._returns = scope.interactive
        """A prompt that was not answered goes back to the user: it waits in the queue, and the front end may
        move it to its input. Elsewhere a prompt that was stored is part of the next request."""

    def close(self) -> None:
        """The conversation ends: no input is left that a prompt could go back to."""
        self._queue.clear()
        self._returns = False
        self._closed = True

    def expect(self) -> None:
        """The user is typing: prepares the model connection."""
        if not self._closed:
            self._runtime.scope.models.warm_up(self._session.info.model)

    async def earlier(self) -> dict[str, tuple[tuple[int, int], ...]]:
        """Earlier prompts in this folder, the latest last, with what is not the user's own words in each.
        Empty if storage cannot be read."""
        if self._closed:
            return {}
        try:
            messages = self._runtime.scope.services.store.messages
            return await messages.list_prompts(self._session.info.cwd, MAX_EARLIER_PROMPTS)
        except StorageError as error:  # the next write reports it
            log.info("no earlier prompts: %s", error.message)
            return {}

    @property
    def queue(self) -> tuple[Message, ...]:
        """Prompts that wait for the end or the next step of the running turn."""
        return self._queue.prompts

    def submit(
        self,
        text: str,
        images: Sequence[Image] = (),
        *,
        mode: Mode | None = None,
        pasted: Sequence[str] = (),
        block: BlockOrigin = "pasted",
        model: str = "",
        after_turn: bool = False,
        typed: str = "",
    ) -> None:
        """Starts a turn with `text`, or sends it with the next step of the one that runs, or `after_turn` (or
        as the settings say). `mode` and `model` apply to that turn only, unless the user chooses others
        meanwhile. `pasted` are parts of `text` that are not the user's own words, but a `block`. `typed` is
        the command that `text` stands for."""
        prompt = self._new_prompt(text, images, pasted, block)
        self._submit(Submission(prompt, mode, model, typed=typed), after_turn=after_turn)

    def _submit(self, submission: Submission, *, after_turn: bool = False) -> None:
        if not self._run_slot.busy:
            self._run_slot.start(self._run(submission))
            return
        waits = after_turn or submission.needs_own_turn or self._user_settings.current.queue != "step"
        self._enqueue(msgspec.structs.replace(submission, next_step=not waits))

    def wake(self, text: str) -> bool:
        """Submits what a hook has found; False if the user of this conversation starts all turns."""
        if self._closed or not self._returns:
            return False
        self._submit(Submission(user_message(text, pasted=(text,), origin="hook")))
        return True

    def _new_prompt(
        self, text: str, images: Sequence[Image], pasted: Sequence[str], block: BlockOrigin
    ) -> Message:
        prompt = user_message(text, images, pasted, self._runtime.scope.services.origin, block)
        self.attachments.begin(prompt)
        return prompt

    def _enqueue(self, submission: Submission, *, first: bool = False) -> None:
        self._queue.add(submission, first=first)
        prompt, next_step = submission.prompt, submission.next_step
        self._emit(
            PromptQueued(prompt.id, prompt.text, tuple(image.info for image in prompt.images), next_step)
        )

    def send_queued(self) -> bool:
        """Starts the next queued prompt: after an interrupt the queue waits for the user."""
        submission = None if self._run_slot.busy else self._queue.pop()
        if submission is None:
            return False
        self._run_slot.start(self._run(submission))
        return True

    def send_now(self) -> bool:
        """Stops the reply that is coming, which is kept, and sends what is queued. False if nothing is."""
        self._sends_now = bool(self._queue.prompts) and self._run_slot.interrupt()
        return self._sends_now

    async def ask(self, text: str, images: Sequence[Image] = (), *, pasted: Sequence[str] = ()) -> TurnStatus:
        """Submits `text`, or the prompt that a `/command` stands for, to an idle conversation, and waits
        until that turn has ended. `pasted` are files in it. Raises UsageError for an unknown command."""
        command = await self.expand_command(text) if text.startswith("/") else None
        if command is None and (typed := _COMMAND.match(text)) and not Path(typed[0]).exists():
            known = FORMER_NAMES.get(typed[1], typed[1])
            problem = "is a command of the app" if by_slash(known) else "is not a command"
            problem += f", now called /{known}" if known != typed[1] else ""
            raise UsageError(f"{typed[0]} {problem}.", "To send it as a prompt, put a space before it.")
        text, pasted = (command.text, (command.text,)) if command else (text, pasted)
        prompt = self._new_prompt(text, images, pasted, "file")
        submission = Submission(prompt, model=command.model if command else "")
        return await asyncio.shield(self._run_slot.start(self._run(submission)))

    async def expand_command(self, text: str) -> CommandPrompt | None:
        """The prompt that `/name arguments` stands for; None if there is no such command. Raises UsageError,
        also if it is interrupted."""
        expand = self._runtime.commands.expand
        if self._run_slot.busy:
            return await expand(text)
        try:
            return await self._run_slot.start(expand(text))
        except asyncio.CancelledError:
            raise UsageError("The command was interrupted and not sent.") from None
        finally:
            self._run_slot.finish()

    @property
    def plan(self) -> Message | None:
        """The plan that waits for approval: the agent's last message in plan mode."""
        if self._approvals.mode != "plan" or self._run_slot.busy or not self._session.history:
            return None
        last = self._session.history[-1]
        done = last.role == "assistant" and last.finish != "interrupted" and not last.calls
        return last if done and last.says_something else None

    async def accept_plan(self, mode: Mode) -> None:
        """Leaves plan mode and carries the plan out."""
        if self.plan is not None and mode != "plan":
            await self._choices.select_mode(mode)
            self.submit(PLAN_ACCEPTED, pasted=(PLAN_ACCEPTED,))

    # --- turns ------------------------------------------------------------------------------------------

    async def _run(self, submission: Submission) -> TurnStatus:
        """The turn of one prompt; then the next one begins, if this is done."""
        status: TurnStatus | None = None
        session, is_withdrawn = self._session.info.id, False
        self._run_slot.failure, self._sends_now = None, False
        try:
            async with self._choices.for_turn(submission.mode, submission.model):
                prompt = await self.attachments.complete(submission.prompt)
                submission = msgspec.structs.replace(submission, prompt=prompt)
                status = await self._turn(await self._with_hooks(prompt))
                await self._between_steps()
                if self._returns and status == "interrupted" and self._is_last(prompt):
                    with suppress(StorageError):  # then it is part of the next request
                        submission = await uncancellable(self._withdraw(submission))
                        is_withdrawn = True
        except asyncio.CancelledError:
            if status is None:  # before the turn could begin
                status = "interrupted"
                if not self._returns and not self._closed:
                    self._emit(Notice(NOT_STORED, "warning"), now=True)
                self._emit(TurnEnded(status))
        except Exception as error:  # a bug before the turn could begin must be shown
            log.exception("the turn could not begin")
            status = "error"
            failure = error if isinstance(error, CrushpyError) else unexpected_error(error)
            self._run_slot.failure = failure
            self._emit(Error("failed", failure.message, failure.hint))
            self._emit(TurnEnded(status))
        finally:
            self._run_slot.finish()
        if status == "done":
            self._title.begin(submission.prompt.text)
            if not self.send_queued() and (plan := self.plan):
                self._emit(PlanReady(plan.id, plan.text))
        elif is_withdrawn or (self._returns and self._is_lost(submission.prompt, session)):
            self._enqueue(submission, first=True)
        elif status == "interrupted" and self._sends_now:
            self.send_queued()
        return status

    async def _turn(self, prompt: Message) -> TurnStatus:
        spent = self._runtime.subagents.spent = Spent(self._runtime.limits)
        self._runtime.spending.declined = False
        recorder = self._runtime.change_recorder
        turn = self._runtime.agent.turn(spent, self._attach_files)
        recorder.turn_begins()
        status = await turn.run(prompt, self._steer)
        recorder.turn_ended(self._session.history[-1].id if self._session.history else "")
        self._run_slot.failure = turn.failure
        return status

    async def _attach_files(self, prompt: Message) -> None:
        await self.attachments.add_files(prompt, self._runtime.agent.tools.run_for_user)

    def _is_lost(self, prompt: Message, session: str) -> bool:
        """Whether a prompt was never stored. It was if a compaction has ended `session`, where it began."""
        is_stored = any(message.id == prompt.id for message in self._session.history)
        return session == self._session.info.id and not is_stored

    def _is_last(self, prompt: Message) -> bool:
        """Whether nothing of a reply has come."""
        said = [message.id for message in self._session.history if kind_of(message) != "file"]
        return said[-1:] == [prompt.id]

    async def _withdraw(self, submission: Submission) -> Submission:
        """Leaves a stored prompt out of the context. Returns a new one, to be sent again."""
        ids = [message.id for message in self._session.history]
        behind = ids[ids.index(submission.prompt.id) :]  # with its files
        await self._leave_out([MessageOverride(name, kind="withdraw") for name in behind])
        return msgspec.structs.replace(
            submission, prompt=msgspec.structs.replace(submission.prompt, id=new_id())
        )

    async def _steer(self) -> None:
        """Sends queued prompts between two steps of a turn."""

        async def add(prompt: Message) -> None:
            try:
                prompt = await self._with_hooks(prompt)
            except CrushpyError as error:
                self._emit(Notice(error.message, "warning"))
                self._enqueue(Submission(prompt), first=True)  # tried again after the turn
                return
            await add_prompt(self._runtime.scope, prompt, steers=True)
            await self._attach_files(prompt)

        await self._between_steps()
        await self._queue.deliver(add)

    async def _with_hooks(self, prompt: Message) -> Message:
        """The prompt with what hooks add to it. Raises CrushpyError if one blocks it."""
        replies: list[HookReply] = []
        fire = self._approvals.hooks.fire
        if not self.hooks_started:
            self.hooks_started = True
            source = "resume" if self._session.stored else "startup"
            replies.append(await fire(HookEvent("SessionStart", source, {"source": source})))
        replies.append(await fire(HookEvent("UserPromptSubmit", "", {"prompt": prompt.text})))
        if replies[-1].decision == "deny" or replies[-1].stop:
            raise CrushpyError(f"A hook blocked the prompt: {replies[-1].reason}")
        notes = [Note(reply.context, origin="hook") for reply in replies if reply.context]
        return msgspec.structs.replace(prompt, parts=(*prompt.parts, *notes)) if notes else prompt
