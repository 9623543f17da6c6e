"""Functions of the caller's program as tools of the agent and as hooks."""

import asyncio
import inspect
import logging
import os
import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextvars import copy_context
from threading import Thread
from typing import Any, TypeVar, cast, get_type_hints, overload

import msgspec

from crushpy.core.access import ToolAccess
from crushpy.core.errors import UsageError
from crushpy.engine.hooks import NO_REPLY, HookEvent, HookReply, Hooks, merge_replies
from crushpy.security.redact import redact
from crushpy.tools.base import Args, CallContext, Outcome, Tool
from crushpy.tools.errors import ToolError
from crushpy.tools.registry import all_tools
from crushpy.tools.shell.command_output import Output, describe_output

F = TypeVar("F", bound=Callable[..., Any])
_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_-]{0,63}")
_MARK = "__crushpy_read_only__"


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(*, read_only: bool = False) -> Callable[[F], F]: ...
def tool(function: Any = None, /, *, read_only: bool = False) -> Any:
    """Marks a function with type hints and a docstring as a tool: `Agent(tools=[function])`.

    It runs in the caller's process, outside the sandbox, so each call needs a permission unless `read_only`.
    """

    def mark(marked: Any) -> Any:
        setattr(marked, _MARK, read_only)
        return marked

    return mark if function is None else mark(function)


class FunctionTool(Tool[Args]):
    """A function as a tool of one agent."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """Raises UsageError if the function cannot be a tool."""
        self.name = getattr(function, "__name__", "")
        self._function = function
        is_read_only = bool(getattr(function, _MARK, False))
        self.access = ToolAccess("none", writes=not is_read_only)
        self.in_reading_tasks = is_read_only
        if not _NAME.fullmatch(self.name):
            raise UsageError(f"{function!r} cannot be a tool.", "Give a function defined with `def`.")
        if self.name in {each.name for each in all_tools()}:
            raise UsageError(f"The tool {self.name} exists already.", "Rename the function.")
        self._text = inspect.getdoc(function) or ""
        if not self._text:
            raise UsageError(f"{self.name} has no docstring.", "The model reads it: say what the tool does.")
        self.args = self._make_args()

    def _make_args(self) -> type[Args]:
        hints = get_type_hints(self._function, include_extras=True)
        fields: list[Any] = []
        for parameter in inspect.signature(self._function).parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                raise UsageError(f"{self.name}: *{parameter.name} cannot be described to the model.")
            if parameter.name not in hints:
                raise UsageError(f"{self.name}: the parameter {parameter.name} has no type hint.")
            default = () if parameter.default is parameter.empty else (parameter.default,)
            fields.append((parameter.name, hints[parameter.name], *default))
        try:
            made = msgspec.defstruct(f"{self.name}_args", fields, bases=(Args,), frozen=True, kw_only=True)
            msgspec.json.schema(made)
        except TypeError as error:
            raise UsageError(f"{self.name}: {error}") from None
        return cast("type[Args]", made)

    def description(self, template: Callable[[], str]) -> str:
        return self._text

    async def run(self, args: Args, context: CallContext) -> Outcome:
        given = {name: getattr(args, name) for name in args.__struct_fields__}
        try:
            if inspect.iscoroutinefunction(self._function):
                result = await self._function(**given)
            else:
                result = await in_own_thread(self._call, given)
            text = result if isinstance(result, str) else _encode(result)
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            raise ToolError(f"{self.name} failed: {type(error).__name__}: {redact(str(error))}") from error
        output = Output(context.workspace.output_dir)
        output.feed(redact(text).encode(errors="replace"))
        output.close()
        return Outcome(describe_output(output.take(), output.where))

    def _call(self, given: dict[str, Any]) -> Any:
        process = os.getpid()
        try:
            return self._function(**given)
        finally:
            if os.getpid() != process:  # a child that it forked: there is no conversation in it
                os._exit(1)


async def in_own_thread(function: Callable[..., Any], *args: Any) -> Any:
    """What a function of the program returns or raises. If it hangs, the program can still end."""
    done = Future[tuple[Any, BaseException | None]]()
    done.set_running_or_notify_cancel()

    def work() -> None:
        try:
            done.set_result((function(*args), None))
        except BaseException as error:
            done.set_result((None, error))

    Thread(target=copy_context().run, args=(work,), daemon=True).start()
    result, error = await asyncio.wrap_future(done)
    if error is not None:
        raise error
    return result


def _encode(result: Any) -> str:
    """A result as JSON; one that has no JSON form as Python prints it."""
    if hasattr(result, "model_dump"):
        result = result.model_dump(mode="json")
    try:
        return msgspec.json.encode(result).decode()
    except TypeError:
        return str(result)


HOOK_EVENTS = ("PreToolUse", "PostToolUse", "PostToolUseFailure", "PreCompact", "PostCompact")
log = logging.getLogger(__name__)


class FunctionHooks(Hooks):
    """Asks a function about each event that it is given for, then the hooks of the settings."""

    def __init__(self, functions: Mapping[str, Callable[[HookEvent], Any]], configured: Hooks) -> None:
        self._functions, self._configured = functions, configured
        self.problems = configured.problems

    async def fire(self, event: HookEvent) -> HookReply:
        function = self._functions.get(event.name)
        own = await self._ask(function, event) if function is not None else NO_REPLY
        if own.decision == "deny" or own.stop:
            return own
        return merge_replies((own, await self._configured.fire(event)))

    async def _ask(self, function: Callable[[HookEvent], Any], event: HookEvent) -> HookReply:
        try:
            answer: Any = await in_own_thread(function, event)
            if inspect.isawaitable(answer):
                answer = await answer
            match answer:
                case None | True:
                    return NO_REPLY
                case False:
                    return HookReply("deny", "a hook of the program refused it")
                case str():
                    return HookReply("deny", answer)
                case _:
                    return msgspec.convert(answer, HookReply)
        except Exception as error:
            log.exception("a hook failed")
            if event.name == "PreToolUse":  # a hook that guards calls must not fail open
                return HookReply("deny", f"a hook of the program failed: {type(error).__name__}: {error}")
            return NO_REPLY

    def wake_with(self, wake: Callable[[str], bool]) -> None:
        self._configured.wake_with(wake)

    def describe(self) -> str:
        return self._configured.describe()

    async def close(self) -> None:
        await self._configured.close()


def checked_functions(functions: Mapping[str, Any]) -> Mapping[str, Callable[[HookEvent], Any]]:
    """Raises UsageError if one cannot be used."""
    for name, function in functions.items():
        if name not in HOOK_EVENTS:
            raise UsageError(f"There is no hook {name}.", f"Use one of {', '.join(HOOK_EVENTS)}.")
        if not callable(function):
            raise UsageError(f"The hook {name} is not a function.")
    return cast("Mapping[str, Callable[[HookEvent], Any]]", functions)
