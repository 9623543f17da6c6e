"""Consent is bound to what was seen, and where: a name alone, or the same text elsewhere, covers nothing."""

import json
from pathlib import Path

import pytest
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM
from support.headless import Run

from crushpy.bootstrap.mcp_servers import McpServers
from crushpy.bootstrap.project_environment import ProjectEnvironment
from crushpy.core.paths import Paths
from crushpy.extensions.mcp.hub import McpHub
from crushpy.extensions.plugins import add_plugin, installed_plugins, remove_plugin
from crushpy.permissions.consents import all_consents, define
from crushpy.permissions.trust import add_trusted
from crushpy.sandbox.finding import find_sandbox
from crushpy.tools.errors import ConsentNeeded, ToolError
from crushpy.tools.shell.jobs import Jobs

needs_sandbox = pytest.mark.skipif(
    find_sandbox("on").name != "bubblewrap", reason="a project's servers run in bubblewrap only"
)
STAND_IN = Path(__file__).parents[1] / "support" / "mcp_stand_in.py"


def make_project(folder: Path, script: str = "print('harmless')") -> Path:
    """A trusted project with a server of its own."""
    folder.mkdir(exist_ok=True)
    (folder / ".git").mkdir(exist_ok=True)
    (folder / "server.py").write_text(script)
    entry = {"command": "python3", "args": ["server.py"]}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"same": entry}}))
    add_trusted(Paths(), folder)
    return folder


def hub_of(folder: Path) -> McpHub:
    return McpServers(ProjectEnvironment(folder), Jobs()).hub()


def asks(hub: McpHub) -> bool:
    return hub.needs_consent(hub.servers["same"])


def question_of(hub: McpHub) -> ConsentNeeded:
    with pytest.raises(ConsentNeeded) as asked:
        hub.restart("same")
    return asked.value


def shown_in(question: ConsentNeeded) -> str:
    return getattr(question.preview, "unified", "")


@pytest.mark.usefixtures("home")
async def test_consent_to_a_server_covers_no_other_project(tmp_path: Path) -> None:
    first, second = (make_project(tmp_path / name) for name in ("first", "second"))
    question_of(hub_of(first)).accept()
    assert not asks(hub_of(first))
    assert asks(hub_of(second)), "the same text, whatever server.py is there"


@pytest.mark.usefixtures("home")
async def test_changed_script_of_a_server_asks_again_and_is_shown(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project")
    question_of(hub_of(project)).accept()
    make_project(project, "print('hostile')")
    hub = hub_of(project)
    assert asks(hub)
    question = question_of(hub)
    assert "has changed since you accepted it" in question.access.reason
    lines = shown_in(question).splitlines()
    assert any(line.startswith("-server.py sha256:") for line in lines)
    assert any(line.startswith("+server.py sha256:") for line in lines)
    assert " python3 server.py" in lines, "what did not change is shown as such"


@pytest.mark.usefixtures("home")
def test_definitions_name_every_script_that_a_command_starts(tmp_path: Path) -> None:
    for name in ("run.sh", "pkg/tool.py", "pkg/__main__.py", "package.json", "notes.txt", "sub/x.js"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    for command, named in {
        'sh "$CLAUDE_PROJECT_DIR"/run.sh > notes.txt': ["run.sh"],
        "python3 -m pkg.tool": ["pkg/tool.py"],
        "python3 -m pkg": ["pkg/__main__.py"],
        "npm run serve": ["package.json"],
        f"node {tmp_path}/sub/x.js && /bin/true": ["sub/x.js"],
        "node ../../outside.js": [],
    }.items():
        lines = define((), (command,), tmp_path).splitlines()
        assert [line.partition(" ")[0] for line in lines] == named
    assert define((), ("node x.js",), tmp_path, "sub").startswith("sub/x.js sha256:")


@pytest.mark.outside_tmp
@needs_sandbox
def test_pins_of_definitions_survive_a_server_of_the_same_name_elsewhere(
    run: Run, llm: ScriptedLLM, tmp_path: Path
) -> None:
    start = "import runpy, sys; sys.argv[1:] = ['1', *open('words').read().split()];"
    start += f"runpy.run_path({str(STAND_IN)!r}, run_name='__main__')"
    projects = [make_project(tmp_path / name, start) for name in ("first", "second")]
    for project in projects:
        question_of(hub_of(project)).accept()

    def call(project: Path, words: str) -> tuple[int, str]:
        (project / "words").write_text(words)
        use = {"action": "call", "server": "same", "tool": "tool_000"}
        llm.script(Reply(calls=[Call("mcp", use)]), "Done.")
        done = run("--allow", "mcp", "--cwd", str(project), "try")
        return done.code, str(llm.requests[-1].body["messages"][-1]["content"])

    first, second = projects
    assert call(first, "") == (0, "tool_000 got {}")
    code, said = call(first, "restless")
    assert code == 3 and "has changed the definition of tool_000" in said
    assert call(second, "") == (0, "tool_000 got {}")
    assert call(first, "restless")[0] == 3, "another project's use does not make it accepted"


def test_changed_plugin_is_not_used_until_it_is_added_again(home: Path, tmp_path: Path) -> None:
    source = tmp_path / "tool"
    (source / "hooks").mkdir(parents=True)
    (source / "plugin.json").write_text('{"name": "tool"}')
    (source / "hooks" / "run.sh").write_text("echo harmless")
    paths = Paths()
    add_plugin(paths, source)
    assert [plugin.problem for plugin in installed_plugins(paths)] == [""]
    (paths.plugins / "tool" / "hooks" / "run.sh").write_text("echo hostile")
    assert "not what you added" in installed_plugins(paths)[0].problem
    add_plugin(paths, source)
    assert [plugin.problem for plugin in installed_plugins(paths)] == [""]
    paths.consents.unlink()
    assert "not what you added" in installed_plugins(paths)[0].problem, "as after an update of crushpy"
    add_plugin(paths, source)
    remove_plugin(paths, "tool")
    assert all_consents(paths) == [] and home.is_dir()


@pytest.mark.parametrize(
    ("name", "value", "loads"),
    [
        ("LD_PRELOAD", "./x.so", True),
        ("GLIBC_TUNABLES", "x", True),
        ("BASH_ENV", "x", True),
        ("NODE_OPTIONS", "--require ./x.js", True),
        ("NODE_OPTIONS", "--max-old-space-size=100", False),
        ("PYTHONPATH", "lib", True),
        ("PYTHONPATH", "/usr/lib/python3", False),
        ("PYTHONSTARTUP", "x.py", True),
        ("TOKEN_FILE", "x", False),
    ],
)
@pytest.mark.usefixtures("home")
async def test_loader_variables_of_an_editor_are_refused_without_a_sandbox(
    name: str, value: str, loads: bool, workspace: Path
) -> None:
    flags = {"mcp.same.command": "true", "mcp.same.env": {name: value}}
    environment = ProjectEnvironment(workspace, flags, editor_servers=("same",))
    hub = McpServers(environment, Jobs()).hub()
    question_of(hub).accept()
    with pytest.raises(ToolError) as refused:
        await hub.connect("same")
    assert (f"sets {name}, which makes programs load other code" in str(refused.value)) == loads
    await hub.close()


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("url", ["file:///etc/passwd", "-x", "javascript:alert(1)", "https://a b", ""])
async def test_server_opens_web_pages_only(url: str, workspace: Path) -> None:
    servers = McpServers(ProjectEnvironment(workspace), Jobs())
    asked: list[str] = []

    async def ask(server: str, question: dict[str, object]) -> dict[str, object]:
        asked.append(str(question["url"]))
        return {"action": "accept"}

    servers.answer_with(ask)
    assert await servers.hub().elicit("one", {"url": url}) == {"action": "decline"}
    assert await servers.hub().elicit("one", {"url": "https://example.com/login?x=1"}) == {"action": "accept"}
    assert asked == ["https://example.com/login?x=1"]
