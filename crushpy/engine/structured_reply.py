"""Replies as data: asks for JSON that matches a schema, checks it, and has it repaired."""

import re
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from crushpy.core.boundary import TurnStatus
from crushpy.core.errors import UsageError
from crushpy.core.messages import Image, Json
from crushpy.engine.conversation import Conversation

MAX_REPAIRS = 2
_FENCED = re.compile(r"^```[\w-]*[ \t]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
_INSTRUCTION = "End with one JSON value that matches this JSON schema, with nothing after it:\n\n{schema}"
_REPAIR = "That is not valid: {problem}\n\nReply with the corrected JSON value alone."


class ReplySchema(msgspec.Struct, frozen=True):
    """A type of value that a reply has to contain."""

    schema: Json
    parse: Callable[[bytes], Any]
    """The value of a JSON text. Raises ValueError."""


class StructuredReply(msgspec.Struct, frozen=True):
    """The outcome of a request for a value."""

    status: TurnStatus
    text: str
    """The last reply."""
    value: Any = None
    problem: str = ""
    """Why there is no value, if every reply was invalid."""


def reply_schema(wanted: Any) -> ReplySchema:
    """For a JSON schema, a pydantic model, or any type that msgspec supports. Raises UsageError."""
    if isinstance(wanted, dict):
        return _json_schema(cast(Json, wanted))
    if hasattr(wanted, "model_json_schema"):
        return ReplySchema(wanted.model_json_schema(), wanted.model_validate_json)
    try:
        schema = msgspec.json.schema(wanted)
    except TypeError as error:
        raise UsageError(
            f"{wanted!r} cannot be used as a schema: {error}.",
            "Give a msgspec.Struct, a dataclass, a TypedDict, a pydantic model, or a JSON schema.",
        ) from None
    return ReplySchema(schema, msgspec.json.Decoder(wanted).decode)


def _json_schema(schema: Json) -> ReplySchema:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise UsageError(
            f"This is not a valid JSON schema: {error.message}", f"See {error.json_path}."
        ) from None
    validator: Any = Draft202012Validator(schema)

    def parse(text: bytes) -> Any:
        value = msgspec.json.decode(text)
        for error in validator.iter_errors(value):
            raise ValueError(f"{error.json_path}: {error.message}")
        return value

    return ReplySchema(schema, parse)


def read_value(text: str, wanted: ReplySchema) -> Any:
    """The value in a reply: all of it, its last fenced block, or from its first brace on. ValueError if there
    is none, or if it does not match."""
    found = text.strip()
    blocks: list[str] = _FENCED.findall(found)
    starts = [place for place in (found.find("{"), found.find("[")) if place >= 0]
    candidates = [found, *blocks[-1:], *([found[min(starts) :]] if starts else [])]
    for candidate in candidates:
        raw = candidate.strip().encode(errors="replace")
        try:
            msgspec.json.decode(raw)
        except (msgspec.DecodeError, RecursionError):
            continue
        return wanted.parse(raw)
    raise ValueError("the reply does not contain JSON")


async def ask_for_value(
    conversation: Conversation,
    prompt: str,
    wanted: ReplySchema,
    images: Sequence[Image] = (),
    *,
    pasted: Sequence[str] = (),
) -> StructuredReply:
    """Asks `prompt` and reads the value from the reply; an invalid one is sent back to be repaired."""
    instruction = _INSTRUCTION.format(schema=msgspec.json.encode(wanted.schema).decode())
    status = await conversation.ask(f"{prompt}\n\n{instruction}", images, pasted=(*pasted, instruction))
    text = problem = ""
    for attempt in range(MAX_REPAIRS + 1):
        replies = (message for message in reversed(conversation.history) if message.role == "assistant")
        text = next((reply.text for reply in replies), "")
        if status != "done":
            return StructuredReply(status, text)
        try:
            return StructuredReply(status, text, read_value(text, wanted))
        except ValueError as error:  # pydantic's and msgspec's errors are ValueErrors as well
            problem = str(error)
        if attempt < MAX_REPAIRS:
            repair = _REPAIR.format(problem=problem)
            status = await conversation.ask(repair, pasted=(repair,))
    return StructuredReply(status, text, problem=problem)
