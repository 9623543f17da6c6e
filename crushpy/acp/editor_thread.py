"""One conversation in an editor: prompts and questions of the protocol, events as updates, files with what is
not saved yet."""

import asyncio
import base64
import re
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

import msgspec

from crushpy.acp import client_connection as rpc
from crushpy.acp import updates
from crushpy.acp import wire_types as wire
from crushpy.context.edits import edits_from, effect_words
from crushpy.core import events
from crushpy.core.access import MODES, AnswerKind
from crushpy.core.app_commands import APP_COMMANDS, EFFORTS, METHODS, MODE_VALUES, CommandValue
from crushpy.core.boundary import BRANCH, KEEPS_CONTEXT
from crushpy.core.errors import CrushpyError
from crushpy.core.ids import new_id
from crushpy.core.messages import Image, Json
from crushpy.engine.approvals import Answer
from crushpy.engine.conversation import Conversation
from crushpy.engine.session.session import OpenBranch
from crushpy.engine.session.tree import undoable_words
from crushpy.llm.errors import Refused
from crushpy.tools.errors import ToolError
from crushpy.tools.files.locate import NamedPath
from crushpy.tools.files.text_file import TextFile, decode, normalize
from crushpy.tools.files.workspace_files import WorkspaceFiles
from crushpy.util.spawn import spawn_among

STOP_REASONS = {
    "done": "end_turn",
    "loop": "end_turn",
    "limit": "max_turn_requests",
    "interrupted": "cancelled",
}
COMMANDS = {command.slash: command for command in APP_COMMANDS if command.in_editor}
ANSWER_TIMEOUT_S = 30.0


class EditorFiles(WorkspaceFiles):
    """Regular files of UTF-8 text in the workspace that are reached through no link; others are on disk."""

    def __init__(
        self, client: rpc.ClientConnection, capabilities: wire.FilesClientCapabilities, cwd: Path
    ) -> None:
        self.session = ""
        self._client, self._capabilities, self._cwd = client, capabilities, cwd
        self._loop = asyncio.get_running_loop()
        self._open: set[Future[Any]] = set()

    def read(self, place: NamedPath) -> bytes:
        raw = super().read(place)
        file = self._editable(place, raw) if self._capabilities.read_text_file else None
        if file is None:
            return raw
        said = self._ask("fs/read_text_file", place)
        try:
            text = msgspec.convert(said, wire.FileText).content
        except msgspec.ValidationError as error:
            problem = f"{place.shown} cannot be read: the editor's answer is invalid ({error})."
            raise ToolError(problem) from None
        return raw if normalize(text) == normalize(file.text) else text.encode()

    def write(self, place: NamedPath, content: bytes, before: bytes | None) -> str:
        file = self._editable(place, content) if self._capabilities.write_text_file else None
        if file is None:
            return super().write(place, content, before)
        if before is not None and self.read(place) != before:
            raise ToolError(f"{place.shown} was changed in the editor just now. View it again first.")
        self._ask("fs/write_text_file", place, content=file.text)
        try:
            written = super().read(place)
        except OSError:
            written = None
        if written == content:
            return ""
        if written is None or written == before:
            raise ToolError(f"{place.shown} was given to the editor, which has not saved it.")
        return "the editor saved it with other content: view it again before you change it"

    def cancel(self) -> None:
        for answer in tuple(self._open):
            answer.cancel()

    def _editable(self, place: NamedPath, content: bytes) -> TextFile | None:
        """The text of a file that the editor can serve."""
        has_no_link = place.path == place.real
        file = decode(content) if has_no_link and place.real.is_relative_to(self._cwd) else None
        plain = file is not None and not file.bom and not file.bad_bytes and file.encoding == "utf-8"
        return file if plain else None

    def _ask(self, method: str, place: NamedPath, **params: str) -> Any:
        """The editor's answer. An error of its own is an error here: the disk may hold something else."""
        request = self._client.request(method, {"sessionId": self.session, "path": str(place.real), **params})
        answer = asyncio.run_coroutine_threadsafe(request, self._loop)
        self._open.add(answer)
        try:
            return answer.result(ANSWER_TIMEOUT_S)
        except rpc.RpcError as error:
            raise ToolError(f"The editor refused {method} for {place.shown}: {error.message}") from None
        except CancelledError:
            raise ToolError(f"{method} for {place.shown} was cancelled.") from None
        except TimeoutError:
            answer.cancel()
            raise ToolError(f"The editor has not answered {method} for {place.shown}.") from None
        finally:
            self._open.discard(answer)


class EditorThread:
    """`id` is the conversation's or that of a fork; boundaries do not change it."""

    def __init__(
        self,
        session: str,
        conversation: Conversation,
        client: rpc.ClientConnection,
        capabilities: wire.SessionClientCapabilities,
        files: EditorFiles,
    ) -> None:
        self.conversation, self._files = conversation, files
        self.id = files.session = session
        self._client = client
        self.shows_compaction = capabilities.compaction is not None
        self._shows_notices = capabilities.notices is not None
        self._answers = False
        """A command is being answered."""
        self._questions: set[asyncio.Task[None]] = set()
        self._outputs: dict[str, str] = {}
        self._compaction = ""
        """The boundary that is being made."""
        self._branches = list(conversation.session.branches)
        self._branch_call = ""
        """The call that opens the next branch."""
        conversation.subscribe(self._on_event)

    # --- state --------------------------------------------------------------------------------------------

    def state(self) -> Json:
        """Modes and options, as in the answers to session/new, load and resume."""
        modes = [{"id": mode.value, "name": mode.title, "description": mode.help} for mode in MODE_VALUES]
        return {
            "modes": {"currentModeId": self.conversation.approvals.mode, "availableModes": modes},
            "configOptions": self.options(),
        }

    def options(self) -> list[Json]:
        settings, info = self.conversation.settings, self.conversation.info
        names = (info.model, settings.model, settings.small_model, *settings.models)
        models = [CommandValue(name, name) for name in dict.fromkeys(names) if name]
        return [
            _select("model", "Model", "model", info.model, models),
            _select("mode", "Mode", "mode", self.conversation.approvals.mode, MODE_VALUES),
            _select("effort", "Effort", "thought_level", settings.effort, EFFORTS),
            _select("compaction", "Compaction", "_compaction", info.compaction, METHODS),
        ]

    async def set_option(self, name: str, value: str) -> None:
        known = {option["id"]: [choice["value"] for choice in option["options"]] for option in self.options()}
        if name not in known:
            raise rpc.invalid(f"There is no option {name}: {', '.join(known)}.")
        if name != "model" and value not in known[name]:
            raise rpc.invalid(f"{name} cannot be {value!r}: {', '.join(known[name])}.")
        match name:
            case "model":
                await self.conversation.choices.select_model(value)
            case "mode":
                await self.set_mode(value)
            case "effort":
                self.conversation.choices.select_effort(value)
            case _:
                await self.conversation.choices.select_compaction(value)

    async def set_mode(self, mode: str) -> None:
        if mode not in MODES:
            raise rpc.invalid(f"There is no mode {mode}: {', '.join(MODES)}.")
        await self.conversation.choices.select_mode(mode)

    def announce_commands(self) -> None:
        offered: list[Json] = []
        for command in (*COMMANDS.values(), *self.conversation.commands.listed()):
            hint = {"input": {"hint": command.argument}} if command.argument else {}
            offered.append({"name": command.slash, "description": command.help, **hint})
        self._update({"sessionUpdate": "available_commands_update", "availableCommands": offered})

    async def replay(self) -> None:
        store, info = self.conversation.sessions.store, self.conversation.info
        messages = await store.messages.load_lineage(info.id)
        lineage = {session.id for session in await store.sessions.load_lineage(info.id)}
        made = await store.boundaries.load_conversation(info.root_id)
        made = [boundary for boundary in made if boundary.child_id in lineage]
        passed = (boundary for boundary in made if boundary.trigger not in KEEPS_CONTEXT)
        waiting, self._branches = self._branches, list[OpenBranch]()
        for message in messages:
            if waiting and message.id == waiting[0].first:
                self._open_branch(waiting.pop(0))
                continue
            for update in updates.replay_message(message, passed, info.cwd, native=self.shows_compaction):
                self._update(update)
        self._branches += waiting  # of damaged records

    # --- prompts ------------------------------------------------------------------------------------------

    async def prompt(self, blocks: Sequence[wire.ContentBlock]) -> Json:
        """Runs a turn. Returns why it stopped."""
        if self.conversation.busy:
            raise rpc.RpcError(rpc.INVALID_REQUEST, "A turn is running in this session: cancel it first.")
        text, pasted, images = await self._read_blocks(blocks)
        name, _, argument = text.strip().removeprefix("/").partition(" ")
        if text.startswith("/") and name in COMMANDS:
            self._answers = True
            text = await self._command(name, argument.strip())
            self._answers = False
            if not text:
                return {"stopReason": "end_turn"}
        status = await self.conversation.ask(text, images, pasted=pasted)
        failure = self.conversation.failure
        if isinstance(failure, Refused):
            return {"stopReason": "refusal"}
        if status == "error":
            message = failure.message if failure else "The turn failed."
            raise rpc.RpcError(rpc.INTERNAL_ERROR, message, {"hint": failure.hint} if failure else None)
        history = self.conversation.history
        cut = status == "done" and history and history[-1].finish == "length"
        return {"stopReason": "max_tokens" if cut else STOP_REASONS[status]}

    def cancel(self) -> None:
        self.conversation.interrupt()
        self._files.cancel()
        for question in self._questions:
            question.cancel()

    async def close(self) -> None:
        self.cancel()
        await self.conversation.close()

    async def _read_blocks(self, blocks: Sequence[wire.ContentBlock]) -> tuple[str, list[str], list[Image]]:
        """The prompt, what of it is not the user's own words, and its pictures."""
        words: list[str] = []
        pasted: list[str] = []
        images: list[Image] = []
        for block in blocks:
            match block.type:
                case "text":
                    words.append(block.text)
                case "image":
                    try:
                        raw = base64.b64decode(block.data, validate=True)
                    except ValueError:
                        raise rpc.invalid("The data of the image is not base64.") from None
                    images.append(await self.conversation.prompts.attachments.load_bytes(raw, "image"))
                case "resource_link":
                    words.append(_mention(block.uri or ""))
                case "resource" if block.resource is not None:
                    content = f"{_mention(block.resource.uri)}\n{block.resource.text}"
                    words.append(content)
                    pasted.append(content)
                case _:
                    raise rpc.invalid(f"A content block of type {block.type} is not supported.")
        text = "\n\n".join(part for part in words if part)
        if not text and not images:
            raise rpc.invalid("The prompt is empty.")
        return text, pasted, images

    async def _command(self, name: str, argument: str) -> str:
        """Answers a command in the thread, without the model. Returns a prompt that has to follow."""
        talk = self.conversation
        try:
            match name:
                case "compact":
                    done = await talk.context.compact(argument)
                    text = "" if done else "There is nothing to compact."
                case "branch":
                    return argument if await talk.context.open_branch(argument) else ""
                case "return":
                    text = "Returned." if await talk.context.return_to_parent(argument) else ""
                case "undo-compaction":
                    what = undoable_words(await talk.context.find_undoable())
                    done = await talk.context.undo_compaction()
                    # An undone return makes its branch the place.
                    self._branches = list(talk.session.branches)
                    text = f"Undone: {what}." if done else "There is no compaction to undo."
                case "pin":
                    pin = talk.pins.add_file if argument.startswith("@") else talk.pins.add_text
                    added = await pin(argument.removeprefix("@"))
                    text = f"Pinned: {added.name or added.text}"
                case "pins":
                    text = "\n".join(f"{pin.number}. {pin.text}" for pin in (await talk.pins.listed()).pins)
                case "rules" if drop := re.fullmatch(r"drop +(\d+)", argument):
                    text = f"Withdrew: {(await talk.rules.drop(int(drop[1]))).text}"
                case "rules" if argument:
                    text = f"Added: {(await talk.rules.add(argument)).text}"
                case "rules":
                    listed = await talk.rules.listed()
                    rows = [f"{rule.number}. {rule.text}{_mark(listed.state(rule))}" for rule in listed.valid]
                    rows += [f"{listed.offer}; /rules TEXT adds one:"] * bool(listed.offer)
                    text = "\n".join([*rows, *(f"- {sentence}" for sentence in listed.unconfirmed)])
                case "budget":
                    text = await talk.spending.choose(argument)
                case "search":
                    found = await talk.sessions.search(argument, within=talk.info.id, each=10)
                    hits = [hit for group in found for hit in group.hits]
                    text = "\n".join(f"- {hit.role}: {hit.snippet}{_mark(hit.state)}" for hit in hits)
                case "tree":
                    tree = await talk.sessions.tree(talk.info.id)
                    rows = [f"- {row.session.id} {row.relation}{' (here)' * row.tip}" for row in tree]
                    text = "\n".join(rows)
                case "context" if argument:
                    text = f"{effect_words(await talk.context.edit(edits_from(argument)))}."
                case _:
                    await talk.context.count_exactly()
                    rows = [
                        f"- {row.tokens:,} {row.name} {row.message_id} {row.state}".rstrip()
                        for row in talk.context.inspect().rows
                    ]
                    text = "\n".join([talk.context.budget().words, *rows])
        except CrushpyError as error:
            text = str(error)
        if text or name not in ("compact", "return"):
            self._update(updates.chunk("agent_message_chunk", text or "There is nothing."))
        return ""

    # --- events -------------------------------------------------------------------------------------------

    def _update(self, update: Json) -> None:
        told = updates.inside(self._branches, update)
        self._client.notify("session/update", {"sessionId": self.id, "update": told})

    def _change_branch(self, event: events.BranchOpened | events.BranchReturned) -> None:
        if isinstance(event, events.BranchOpened):
            opened = (event.session_id, event.parent_id, event.goal, "", self._branch_call)
            self._open_branch(OpenBranch(*opened))
        elif self._branches:
            call = self._branches.pop().call_id or f"branch-{event.session_id}"
            self._update(updates.branch_returned(call, event.report, interrupted=event.interrupted))

    def _open_branch(self, branch: OpenBranch) -> None:
        self._update(updates.branch_opened(branch.call_id, branch.session_id, branch.goal))
        self._branches.append(branch)
        self._branch_call = ""

    def _on_event(self, event: events.Event) -> None:
        match event:
            case events.TextDelta():
                self._update(updates.chunk("agent_message_chunk", event.text))
            case events.ThinkingDelta():
                self._update(updates.chunk("agent_thought_chunk", event.text))
            case events.ToolCalled():
                folder = self.conversation.info.cwd
                self._update(updates.call_started(event.id, event.name, event.args, folder))
            case events.ToolStarted():
                self._update(updates.tool_update(event.id, "in_progress"))
            case events.ToolOutput():
                text = (self._outputs.get(event.id, "") + event.text)[-updates.MAX_OUTPUT_CHARS :]
                self._outputs[event.id] = text
                self._update(updates.tool_update(event.id, "in_progress", updates.output_content(text)))
            case events.ToolFinished() if event.name == BRANCH and not event.is_error:
                self._branch_call = event.id
            case events.BranchOpened() | events.BranchReturned():
                self._change_branch(event)
            case events.ToolFinished():
                self._outputs.pop(event.id, None)
                kept = event.name in ("edit", "multiedit", "write")  # the diff that its call has shown
                content = [] if kept and not event.is_error else updates.result_content(event.text)
                self._update(updates.tool_finished(event.id, event.is_error, *content))
            case events.TodosChanged():
                self._update(updates.plan(event.todos))
            case events.UsageReported():
                self._report_usage(event)
            case events.TitleChanged():
                self._update({"sessionUpdate": "session_info_update", "title": event.title})
            case events.ModeChanged():
                self._update({"sessionUpdate": "current_mode_update", "currentModeId": event.mode})
            case events.ApprovalNeeded():
                spawn_among(self._questions, self._question(event))
            case events.Compacting() if self.shows_compaction:
                self._compaction = new_id()
                self._update(updates.compaction_update(self._compaction, "in_progress"))
            case events.BoundaryCommitted():
                found, self._compaction = self._compaction or event.id, ""
                self._update(updates.compacted(found, event, event.summary, native=self.shows_compaction))
            case events.TurnEnded() if self._compaction:
                status = "cancelled" if event.status == "interrupted" else "failed"
                self._update(updates.compaction_update(self._compaction, status))
                self._compaction = ""
            case events.HindsightKnown():
                known = {"hindsight": msgspec.to_builtins(event)}
                self._update({"sessionUpdate": "session_info_update", "_meta": {"crushpy": known}})
            case events.RuleChanged() | events.Notice():
                self._tell(event)
            case _:
                pass

    def _tell(self, event: events.RuleChanged | events.Notice) -> None:
        if isinstance(event, events.RuleChanged):
            level, text, rule = "info", event.words, {"rule": msgspec.to_builtins(event)}
            self._update({"sessionUpdate": "session_info_update", "_meta": {"crushpy": rule}})
        else:
            level, text = event.level, event.text
        if self._shows_notices:
            self._update({"sessionUpdate": "notice", "severity": level, "title": text})
        elif self._answers:
            self._update(updates.chunk("agent_message_chunk", f"{text}\n"))

    def _report_usage(self, event: events.UsageReported) -> None:
        budget = self.conversation.context.budget()
        update: Json = {"sessionUpdate": "usage_update", "used": budget.used, "size": budget.window}
        if event.total.cost:
            update["cost"] = {"amount": event.total.cost, "currency": "USD"}
        self._update(update)

    async def _question(self, event: events.ApprovalNeeded) -> None:
        answer = Answer("deny")
        try:
            question = updates.permission(event, self.conversation.info.cwd)
            params = {"sessionId": self.id, **question}
            said = await self._client.request("session/request_permission", params)
            outcome = msgspec.convert(said, wire.PermissionAnswer).outcome
            if outcome.outcome == "cancelled":
                self.conversation.interrupt()
                return
            chosen = outcome.option_id
            known = {option["optionId"] for option in question["options"]}
            kind, _, key = chosen.partition(":")
            if chosen in known:
                answer = Answer(cast(AnswerKind, kind), key=key)
        except (rpc.RpcError, msgspec.ValidationError):
            pass  # no answer is a refusal
        self.conversation.answer(event.id, answer)


def _select(name: str, title: str, category: str, current: str, values: Sequence[CommandValue]) -> Json:
    options = [{"value": value.value, "name": value.title, "description": value.help} for value in values]
    base: Json = {"id": name, "name": title, "category": category, "type": "select"}
    return {**base, "currentValue": current, "options": options}


def _mark(state: str) -> str:
    return f" ({state})" if state else ""


def _mention(uri: str) -> str:
    """A file as a mention, anything else as it is."""
    parts = urlsplit(uri)
    return f"@{unquote(parts.path)}" if parts.scheme == "file" else uri
