"""A tool is registered, described, declared and documented; its arguments are read with patience."""

import inspect
import pkgutil
from importlib import import_module
from pathlib import Path
from typing import Annotated

import pytest
from msgspec import Meta

import crushpy.tools
from crushpy.core.access import ToolAccess
from crushpy.permissions.rules import READ, RUN, TALK, WRITE
from crushpy.tools.base import Args, Tool
from crushpy.tools.errors import ToolError
from crushpy.tools.registry import all_tools, check_args, describe_unknown, tool_table

ROOT = Path(__file__).parents[2]
TOOLS = {tool.name: tool for tool in all_tools()}
DESCRIBED_ELSEWHERE = {"new_session": "templates/new_session.md"}
OFFERED_IF_CONFIGURED = {"lsp", "mcp", "skill"}


def defined() -> dict[str, type[Tool[Args]]]:
    """Every tool of the package, by name."""
    files = [module.name for module in pkgutil.iter_modules(crushpy.tools.__path__) if not module.ispkg]
    modules = [import_module(f"crushpy.tools.{name}") for name in files]
    return {
        vars(member)["name"]: member
        for module in modules
        for _, member in inspect.getmembers(module, inspect.isclass)
        if issubclass(member, Tool) and member.__module__ == module.__name__ and "name" in vars(member)
    }


@pytest.mark.parametrize("name", defined())
def test_tool_is_listed_declared_described_and_documented(name: str) -> None:
    tool = defined()[name]
    place = f"{tool.__module__}.{tool.__name__}"
    listed = name in TOOLS or name in OFFERED_IF_CONFIGURED
    assert listed, f"{place}: the tool is not listed in all_tools() of crushpy/tools/registry.py"
    declared = isinstance(getattr(tool, "access", None), ToolAccess)
    assert declared, f"{place}: say what its calls touch: access = ToolAccess(...)"
    overrides = tool.accesses is not Tool[Args].accesses
    names_path = tool.access.kind == "path" and {"file_path", "path"} & set(tool.args.__struct_fields__)
    says_what = overrides or tool.access.kind == "none" or names_path
    assert says_what, f"{place}: accesses() must say which {tool.access.kind}"
    template = DESCRIBED_ELSEWHERE.get(name, f"templates/tools/{name}.md")
    assert (ROOT / template).is_file(), f"the model is not told what {name} is for: write {template}"
    documented = f"`{name}`" in (ROOT / "docs" / "permissions.md").read_text()
    assert documented, f"docs/permissions.md does not name `{name}` among the tools and their patterns"


def test_the_rights_that_rules_speak_of_are_tools_of_that_kind() -> None:
    tools = tool_table()
    assert (tools[READ].kind, tools[READ].writes) == ("path", False)
    assert (tools[WRITE].kind, tools[WRITE].writes) == ("path", True)
    assert (tools[RUN].kind, tools[TALK].kind) == ("command", "host")


# --- arguments -------------------------------------------------------------------------------------


class DrawArgs(Args, frozen=True):
    printable: str = ""
    many: Annotated[int, Meta(ge=0, description="how many")] = 0
    far: Annotated[float | None, Meta(description="in metres")] = None
    bold: bool = False
    either: int | str = 0


class Draw(Tool[DrawArgs]):
    name = "draw"
    args = DrawArgs
    access = ToolAccess("none")


def test_numbers_and_flags_written_as_text_are_understood_and_texts_stay() -> None:
    given = {"printable": "12", "many": "3", "far": "2.5", "bold": "True", "either": "7"}
    assert check_args(Draw(), given) == DrawArgs("12", 3, 2.5, True, "7")
    assert check_args(Draw(), {"many": None, "far": None, "bold": None}) == DrawArgs()


def test_arguments_of_a_wrong_type_are_refused_with_the_schema() -> None:
    with pytest.raises(ToolError, match=r"Invalid arguments for draw.*It takes: printable\?, many\?"):
        check_args(Draw(), {"many": "three"})


def test_unknown_fields_are_ignored_and_the_model_is_told() -> None:
    tools = {tool.name: tool for tool in all_tools()}
    given = {"file_path": "a.py", "encoding": "utf-8"}
    assert check_args(tools["view"], given) == check_args(tools["view"], {"file_path": "a.py"})
    assert describe_unknown(tools["view"], given) == "\n(Ignored: encoding. view has no such fields.)"
    assert describe_unknown(tools["view"], {"file_path": "a.py"}) == ""
    todos = {"todos": [{"content": "Test it", "activeForm": "Testing it", "status": "pending"}]}
    assert check_args(tools["todos"], todos).todos[0].text == "Test it"
    assert "Ignored: activeForm." in describe_unknown(tools["todos"], todos)
    task = {"description": "Look around", "prompt": "Look at all files"}
    assert check_args(tools["task"], task).prompt == "Look at all files"
    assert check_args(tools["task"], {"description": "Look around"}).prompt == "Look around"
    assert check_args(tools["bash"], {"command": "make serve", "run_in_background": True}).background


def test_an_error_names_the_fields_of_items() -> None:
    tools = {tool.name: tool for tool in all_tools()}
    with pytest.raises(ToolError, match=r"todos \[text, status\?\]"):
        check_args(tools["todos"], {"todos": [{"status": "pending"}]})
