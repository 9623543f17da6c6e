"""Runs the user's hooks at the events of one conversation, and reads their answers."""

import asyncio
import os
import shlex
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from crushpy.core.errors import CrushpyError
from crushpy.core.events import Emit, Notice
from crushpy.core.ids import new_id
from crushpy.core.messages import Diff, Json, ToolCall
from crushpy.core.paths import Paths, project_root
from crushpy.engine.approvals import Approvals
from crushpy.engine.hooks import MAX_SENT_BACK, NO_REPLY, HookEvent, HookReply, Hooks, merge_replies
from crushpy.engine.session.session import LiveSession
from crushpy.extensions.hooks import hook_config
from crushpy.extensions.hooks.hook_config import HookCommand, HookSetup, hooks_text
from crushpy.permissions.consents import add_consent, find_consent, has_consent, show_difference
from crushpy.security.redact import redact
from crushpy.security.sanitize import clean, one_line
from crushpy.storage.records import AuditEntry
from crushpy.tools.base import Workspace
from crushpy.tools.errors import ToolError
from crushpy.tools.shell.command_output import LiveOutput, Output
from crushpy.util.spawn import spawn

TIMEOUT_S = 60.0
LONGEST_S = {"PreCompact": 10.0, "SessionEnd": 10.0}
"""How long these events wait at most; others for 10 minutes."""
IDLE_S = 60.0
"""After the end of a turn, until hooks are told that the prompt is idle."""
MAX_OUTPUT_CHARS = 1_000_000
MAX_TEXT_CHARS = 10_000
MAX_SHOWN_RUNS = 100
_MODES = {"ask": "default", "edits": "acceptEdits", "plan": "plan"}
_VERDICTS = {"block": "deny", "deny": "deny", "allow": "allow", "approve": "allow", "ask": "ask"}
_OBSERVING = ("SessionStart", "SessionEnd", "Notification", "PostCompact")
"""Hooks of these events cannot block anything."""


class CommandHooks(Hooks):
    def __init__(
        self,
        configured: HookSetup,
        session: LiveSession,
        approvals: Approvals,
        workspace: Workspace,
        emit: Emit,
    ) -> None:
        self._hooks, self.problems, runner, project = configured
        self._project = os.path.realpath(project)
        self._session, self._approvals, self._workspace, self._emit = session, approvals, workspace, emit
        self._root = project_root(workspace.cwd)
        self._own_jobs = workspace.jobs.unconfined(runner)
        self._transcripts = hook_config.TranscriptFile(workspace.output_dir)
        self._runs = deque[str](maxlen=MAX_SHOWN_RUNS)
        self._unrecorded: list[AuditEntry] = []
        self._answers: dict[str, str] = {}
        """Why the project's hooks may not run, by their text; empty if they may."""
        self._asking = asyncio.Lock()
        self._idle: asyncio.TimerHandle | None = None
        self._late: list[str] = []
        """What hooks in the background have for the agent, until it can be told."""
        self._woken: list[str] = []
        """What has woken the agent since the user's last prompt."""
        self._wake: Callable[[str], bool] = lambda _: False
        self._closing = False

    async def fire(self, event: HookEvent) -> HookReply:
        if self._idle is not None:
            self._idle.cancel()
        if event.name == "Stop" and self._approvals.interactive:
            fields = {"notification_type": "idle_prompt", "message": "crushpy waits for your prompt"}
            idle = HookEvent("Notification", "idle_prompt", fields)
            self._idle = asyncio.get_running_loop().call_later(IDLE_S, lambda: spawn(self.fire(idle)))
        name, fields, names = event.name, event.fields, (event.subject,) if event.subject else ()
        call, outcome, given = event.call, event.outcome, dict[str, Any]()
        if call is not None:
            given = hook_config.tool_input(call, self._session.info.cwd)
            names = hook_config.tool_names(call, event.accesses)
            fields = {"tool_name": names[0], "tool_input": given, "tool_use_id": call.id}
            if outcome is not None and outcome.is_error:
                name, fields["error"] = "PostToolUseFailure", outcome.text
            elif outcome is not None:
                fields["tool_response"] = hook_config.tool_response(call, given, outcome)
        chosen = [hook for hook in self._hooks if hook.matches(name, names, given)]
        if any(hook.project for hook in chosen) and not await self._accepted():
            chosen = [hook for hook in chosen if not hook.project]
        if name == "UserPromptSubmit" and fields["prompt"] not in self._woken:
            self._woken.clear()
        late = NO_REPLY
        if name in ("UserPromptSubmit", "PostToolUse") and not event.task:
            late, self._late = HookReply(context="\n".join(self._late)), []
        if not chosen:
            return late
        if name == "Stop" and self._woken:
            fields = fields | {"stop_hook_active": True}
        data = self._payload(name, fields, event.task)
        replies = await asyncio.gather(*(self._reply_in_time(hook, data) for hook in chosen))
        reply = merge_replies((late, *replies))
        if call is not None and reply.args is not None:
            reply = msgspec.structs.replace(reply, args=hook_config.own_args(call, reply.args))
        return reply

    def _payload(self, event: str, fields: Json, task: str) -> bytes:
        info, mode = self._session.info, _MODES[self._approvals.mode]
        common: Json = {
            "session_id": info.id,
            "transcript_path": self._transcripts.write(self._session),
            "cwd": info.cwd,
            "permission_mode": "bypassPermissions" if self._approvals.yolo else mode,
            "hook_event_name": event,
        }
        common |= {"agent_id": task, "agent_type": "task"} if task else {"model": info.model}
        return msgspec.json.encode(common | fields)

    async def _reply_in_time(self, hook: HookCommand, data: bytes) -> HookReply:
        """The reply of a hook, or none once it goes on in the background."""
        detached: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        running = spawn(self._run(hook, data, detached))
        if hook.is_async:
            detached.set_result(0.0)
        try:
            await asyncio.wait((running, detached), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            running.cancel()
            raise
        return running.result() if running.done() and not detached.done() else NO_REPLY

    async def _run(self, hook: HookCommand, data: bytes, detached: "asyncio.Future[float]") -> HookReply:
        """Runs a hook to its end or its timeout; then it and everything it started is killed. If its first
        line says that it goes on in the background, `detached` gets the seconds for that."""
        jobs = self._workspace.jobs if hook.project else self._own_jobs
        usual = 10 * TIMEOUT_S if hook.is_async else TIMEOUT_S
        limit = min(hook.timeout or usual, LONGEST_S.get(hook.event, 10 * TIMEOUT_S))
        named = f"CLAUDE_PROJECT_DIR={shlex.quote(str(self._root))}"
        named += f" CLAUDE_PLUGIN_ROOT={shlex.quote(hook.plugin)}" if hook.plugin else ""
        seen: list[str] = []

        def hear(text: str) -> None:
            seen.append(text)
            line, ended, _ = "".join(seen).lstrip().partition("\n")
            if ended and not detached.done() and (said := _read_json(line)).get("async") is True:
                detached.set_result(float(said.get("asyncTimeout") or 0) / 1_000)

        output = Output(None, LiveOutput(hear), MAX_OUTPUT_CHARS)
        errors = Output(None, limit=MAX_OUTPUT_CHARS)
        process, code, started = None, None, time.monotonic()
        try:
            with tempfile.TemporaryFile() as given:
                given.write(data)
                given.seek(0)
                command, streams = f"export {named}\n{hook.command}", (errors, given.fileno())
                process = jobs.run(command, self._workspace.cwd, output, streams=streams)
            in_time = await process.finish(limit)
            if not in_time and detached.done():
                limit = max(limit, min(detached.result(), 10 * TIMEOUT_S))
                in_time = await process.finish(limit - (time.monotonic() - started))
            code = process.exit_code
            ended = f"exit code {code}" if in_time else f"took more than {limit:g} s and was killed"
            if code is None and in_time:
                why = process.trouble or f"was ended by {process.signal_name}"
                ended = "was ended with the conversation" if self._closing else why
        except (ToolError, OSError) as error:
            ended = one_line(str(error))
        finally:
            if process is not None and not process.exited.is_set():
                spawn(process.kill())
        output_text = output.take().text
        reply, notice = read_reply(hook, code, output_text, errors.take().text)
        if detached.done():
            notice = self._keep(hook, reply, output_text) or notice
        if (notice or code not in (0, 2)) and not (code is None and self._closing):
            notice = notice if code in (0, 2) else f"{ended}. {notice}".strip()
            self._emit(Notice(f"Hook {hook.event} ({one_line(hook.command)[:60]}): {notice}", "warning"))
        ended += f", {(time.monotonic() - started) * 1_000:.0f} ms"
        ended += f", {reply.decision}: {one_line(reply.reason)[:200]}" if reply.decision else ""
        command = redact(one_line(hook.command)[:200])
        self._runs.appendleft(f"- {hook.event}: `{command}`: {ended}")
        body = {"event": hook.event, "command": command, "source": str(hook.file), "ended": ended}
        self._unrecorded.append(AuditEntry("hook", body, self._session.info.id))
        spawn(self._record())
        return reply

    def _keep(self, hook: HookCommand, reply: HookReply, output: str) -> str:
        """Passes on what a hook in the background has found; returns what to tell the user about it."""
        if reply.context:
            self._late.append(reply.context)
        if not hook.wakes or reply.decision != "deny" or len(self._woken) >= MAX_SENT_BACK:
            return ""
        found = f"{_text(hook.wake_message)}\n{reply.reason}".strip()
        if self._wake(found):
            self._woken.append(found)
        else:
            self._late.append(found)
        return _text(_read_json(output).get("rewakeSummary") or hook.wake_summary) or "the agent is told"

    def wake_with(self, wake: Callable[[str], bool]) -> None:
        self._wake = wake

    async def _record(self) -> None:
        """Stores the records of runs, once their session is stored."""
        if self._session.stored and self._unrecorded:
            entries, self._unrecorded = self._unrecorded, []
            with suppress(CrushpyError):  # the next write reports that storage is lost
                await self._session.record(entries)

    async def _accepted(self) -> bool:
        """Whether the project's hooks may run as they are now. Asks the user about new and changed ones."""
        hooks = [hook for hook in self._hooks if hook.project]
        text = hooks_text(hooks, self._root)
        async with self._asking:
            if text not in self._answers:
                self._answers[text] = problem = await self._ask(text, hooks)
                if problem:
                    self._emit(Notice(f"The hooks of this project are not run: {problem}.", "warning"))
        return not self._answers[text]

    async def _ask(self, text: str, hooks: Sequence[HookCommand]) -> str:
        sandbox, paths = self._workspace.jobs.confinement.sandbox, Paths()
        if not sandbox.on:
            return f"they need a sandbox, and there is none ({sandbox.why_not})"
        if not has_consent(paths, "hooks", self._project, text):
            if not self._approvals.interactive:
                return "they are new or have changed; to accept them, run `crushpy trust`"
            before = find_consent(paths, "hooks", self._project)
            changes = show_difference(before.definition if before else "", text)
            commands = [f"{hook.event}: {hook.command}" for hook in hooks]
            call = ToolCall(new_id(), "hooks", {"commands": commands})
            words = "Run this project's hooks?", "they are new or have changed", "run them", "don't run them"
            shown = Diff("hooks", changes, changes.count("\n+"), changes.count("\n-"))
            if not await self._approvals.confirm(call, *words, preview=shown):
                return "you declined them"
            add_consent(paths, "hooks", self._project, text)
        return ""

    def describe(self) -> str:
        whole = ((f"{hook.event} {hook.matcher}".rstrip(), hook) for hook in self._hooks)
        lines = [f"- {when}: `{hook.command}` ({hook.file})" for when, hook in whole]
        lines += [f"- not used: {problem}" for problem in self.problems]
        runs = self._runs or ["- none yet"]
        return redact(clean("\n".join(("**Hooks**", *lines, "\n**Last runs**", *runs))))

    async def close(self) -> None:
        self._closing = True
        if self._idle is not None:
            self._idle.cancel()
        await self._own_jobs.close()
        await self._record()


def _read_json(output: str) -> Json:
    """The object that a hook prints, or its first line that is one and not that of `async`; empty if none."""
    for text in (output, *output.splitlines()):
        with suppress(msgspec.MsgspecError, RecursionError):
            said = msgspec.json.decode(text, type=dict[str, Any])
            if text is output or not said.get("async"):
                return said
    return {}


def _text(value: object) -> str:
    """What a hook says, for people and models."""
    return redact(clean(str(value or "")[:MAX_TEXT_CHARS])).strip()


def read_reply(hook: HookCommand, code: int | None, output: str, errors: str) -> tuple[HookReply, str]:
    """What a hook wants, by its exit code and by the JSON that it prints; and what to tell the user."""
    event, text = hook.event, output.strip()
    if code == 2 and event not in _OBSERVING:
        return HookReply("deny", _text(errors) or "no reason given"), ""
    if code != 0:
        return NO_REPLY, one_line(_text(errors))[:200]
    if not text.startswith("{"):
        return HookReply(context=_text(text) if event in ("SessionStart", "UserPromptSubmit") else ""), ""
    try:
        said = _read_json(text) or msgspec.json.decode(text, type=dict[str, Any])
        own = msgspec.convert(said.get("hookSpecificOutput") or {}, dict[str, Any])
        asked = msgspec.convert(own.get("decision") or {}, dict[str, Any])
        args = msgspec.convert(own.get("updatedInput") or asked.get("updatedInput"), dict[str, Any] | None)
        evidence = msgspec.convert(own.get("evidence") or (), tuple[str, ...])
    except (msgspec.MsgspecError, RecursionError) as error:
        return NO_REPLY, f"its output cannot be used: {error}"
    words = (own.get("permissionDecision"), asked.get("behavior"), said.get("decision"))
    decision: Any = next((_VERDICTS[str(word)] for word in words if str(word) in _VERDICTS), "")
    reasons = (own.get("permissionDecisionReason"), asked.get("message"), said.get("reason"))
    stops = said.get("continue") is False or asked.get("interrupt") is True
    stop = (_text(said.get("stopReason")) or "no reason given") if stops else ""
    if stop and event == "PreToolUse":
        decision = "deny"
    consents = event in ("PreToolUse", "PermissionRequest")
    if event in _OBSERVING or (decision == "allow" and (hook.project or not consents)):
        decision = ""
    reason = _text(next(filter(None, reasons), "")) or stop or "no reason given"
    foreign = bool(hook.plugin)
    reply = HookReply(decision, reason, _text(own.get("additionalContext")), args, evidence, stop, foreign)
    return reply, _text(said.get("systemMessage"))
