"""All tools, their schemas, and the validation of arguments."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import msgspec

from crushpy.core.access import Access, ToolAccess, ToolTable, declare_tools
from crushpy.core.messages import Json, ToolCall
from crushpy.tools.base import AnyTool, Args, CallContext
from crushpy.tools.errors import ToolError


def all_tools(*, lsp: bool = False) -> tuple[AnyTool, ...]:
    """The tools of the main agent, in the order in which the model sees them; `lsp`: with the tool `lsp`."""
    if lsp:
        from crushpy.tools.lsp import LspTool

        return (*all_tools(), LspTool())
    from crushpy.tools.bash import BashTool
    from crushpy.tools.edit import EditTool, MultiEditTool
    from crushpy.tools.fetch import FetchTool
    from crushpy.tools.glob import GlobTool
    from crushpy.tools.grep import GrepTool
    from crushpy.tools.job_control import JobKillTool, JobOutputTool
    from crushpy.tools.ls import LsTool
    from crushpy.tools.recall import RecallTool
    from crushpy.tools.session_control import BranchTool, NewSessionTool, ReturnTool
    from crushpy.tools.task import TaskTool
    from crushpy.tools.todos import TodosTool
    from crushpy.tools.view import ViewTool
    from crushpy.tools.write import WriteTool

    editing = (EditTool(), MultiEditTool(), WriteTool())
    running = (BashTool(), JobOutputTool(), JobKillTool(), FetchTool(), TodosTool(), TaskTool(), RecallTool())
    session = (BranchTool(), ReturnTool(), NewSessionTool())
    return (ViewTool(), LsTool(), GlobTool(), GrepTool(), *editing, *running, *session)


def tool_table() -> ToolTable:
    """What the calls of each tool touch. Also declares it for parsing permission rules."""
    from crushpy.tools.mcp import McpTool
    from crushpy.tools.skill import SkillTool

    table = {tool.name: tool.access for tool in (*all_tools(), McpTool(), SkillTool())}
    table["lsp"] = ToolAccess("path")  # its module is loaded only if it is offered
    declare_tools(table)
    return table


@cache
def schema(args: type[Args]) -> Json:
    """The JSON schema of a tool's arguments, inlined and without what a model does not need."""
    (root,), definitions = msgspec.json.schema_components([args], ref_template="{name}")
    return _simplify(root, definitions)


def _simplify(node: Any, definitions: Mapping[str, Any], *, names: bool = False) -> Any:
    """Inlines references; drops titles, docstrings of structs and defaults. `names`: the keys are argument
    names."""
    if isinstance(node, list):
        return [_simplify(value, definitions) for value in node]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(node, dict):
        return node
    fields: dict[str, Any] = node  # pyright: ignore[reportUnknownVariableType]
    if names:
        return {key: _simplify(value, definitions) for key, value in fields.items()}
    if "$ref" in fields:
        return _simplify(definitions[fields["$ref"]], definitions)
    if "anyOf" in fields:
        options = [option for option in fields["anyOf"] if option != {"type": "null"}]
        if len(options) == 1:
            rest = {key: value for key, value in fields.items() if key != "anyOf"}
            return _simplify({**rest, **options[0]}, definitions)
    is_struct = "properties" in fields
    dropped = {"title", "default", "additionalProperties"} | ({"description"} if is_struct else set[str]())
    if not fields.get("required", True):
        dropped.add("required")
    return {
        key: _simplify(value, definitions, names=key == "properties")
        for key, value in fields.items()
        if key not in dropped
    }


_SYSTEM_TEXTS = {"file_path", "path", "pattern", "include", "command", "url"}
"""Arguments that are passed on to the operating system."""


def check_call(tools: Mapping[str, AnyTool], call: ToolCall) -> tuple[AnyTool, Args]:
    """The tool of a call and its arguments. Raises a ToolError that tells the model what to fix."""
    tool = tools.get(call.name)
    if tool is None:
        raise ToolError(f"There is no tool named {call.name!r}. There are: {', '.join(tools)}.")
    if call.bad_json:
        raise ToolError(
            f"The arguments of {call.name} are not a JSON object: {call.bad_json[:200]!r}. "
            "Call it again with one."
        )
    return tool, check_args(tool, call.args)


def accesses_of(tools: Mapping[str, AnyTool], call: ToolCall, context: CallContext) -> tuple[Access, ...]:
    """What a call would access; empty if it is invalid."""
    try:
        tool, args = check_call(tools, call)
        return tool.accesses(args, context)
    except (ToolError, OSError):
        return ()


def check_args(tool: AnyTool, args: Json) -> Args:
    """`args` as the tool's own type, without unknown fields. Raises a ToolError that tells the model what to
    fix."""
    for name in _SYSTEM_TEXTS & args.keys():
        if "\0" in (value if isinstance(value := args[name], str) else ""):
            raise ToolError(f"{name} contains a NUL character, which no path and no command can.")
    if (own := tool.parse_args(args)) is not None:
        return own
    # Models write null for a missing argument, and numbers as text: both are accepted.
    optional = {field.encode_name for field in msgspec.structs.fields(tool.args) if not field.required}
    known = _without_unknown(args, schema(tool.args), tool.aliases, [])
    given = {name: value for name, value in known.items() if value is not None or name not in optional}
    try:
        return msgspec.convert(given, tool.args, strict=False)
    except msgspec.ValidationError as error:
        signature = ", ".join(_argument_names(schema(tool.args)))
        raise ToolError(f"Invalid arguments for {tool.name}: {error}. It takes: {signature}.") from error


def describe_unknown(tool: AnyTool, args: Json) -> str:
    """A note to the model about fields of a call that the tool does not have; empty if there are none."""
    dropped: list[str] = []
    if tool.parse_args(args) is None:
        _without_unknown(args, schema(tool.args), tool.aliases, dropped)
    names = ", ".join(dict.fromkeys(dropped))
    return f"\n(Ignored: {names}. {tool.name} has no such fields.)" if names else ""


def _without_unknown(value: Any, shape: Json, aliases: Mapping[str, str], dropped: list[str]) -> Any:
    """`value` with only the fields of `shape`; the names of others are added to `dropped`."""
    if isinstance(value, list) and "items" in shape:
        return [_without_unknown(item, shape["items"], aliases, dropped) for item in value]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(value, dict) or "properties" not in shape:
        return value  # pyright: ignore[reportUnknownVariableType]
    fields: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
    properties: dict[str, Any] = shape["properties"]
    known: dict[str, Any] = {}
    for name, content in fields.items():
        meant = aliases.get(name, name)
        field = meant if name not in properties and meant not in fields else name
        if field in properties:
            known[field] = _without_unknown(content, properties[field], aliases, dropped)
        else:
            dropped.append(name)
    return known


def _argument_names(shape: Json) -> Iterable[str]:
    """Its fields, with those of the items of a list: todos [text, status?]."""
    required = shape.get("required", ())
    for name, content in shape["properties"].items():
        items: Json = content.get("items", {})
        inside = f" [{', '.join(_argument_names(items))}]" if "properties" in items else ""
        yield (name if name in required else f"{name}?") + inside
