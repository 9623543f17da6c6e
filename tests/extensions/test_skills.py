"""Skills: found in all folders, listed within a budget, loaded once, refused with a reason."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM
from support.command import Cli
from support.headless import Run

from crushpy.sandbox.finding import find_sandbox

pytestmark = pytest.mark.slow


def add_skill(folder: Path, name: str, body: str = "", description: str = "") -> Path:
    """A skill in `folder`/skills."""
    place = folder / "skills" / name
    place.mkdir(parents=True)
    head = f"---\nname: {name}\ndescription: {description or f'About {name}'}\n---\n"
    (place / "SKILL.md").write_text(head + (body or f"Do {name} well."))
    return place


def load(name: str) -> Reply:
    return Reply(calls=[Call("skill", {"name": name})])


def results(llm: ScriptedLLM) -> list[str]:
    return [message["content"] for message in llm.requests[-1].body["messages"] if message["role"] == "tool"]


def system(llm: ScriptedLLM) -> str:
    return llm.requests[-1].body["messages"][0]["content"]


def skill_tool(llm: ScriptedLLM) -> dict[str, Any] | None:
    tools = llm.requests[-1].body["tools"]
    return next((tool["function"] for tool in tools if tool["function"]["name"] == "skill"), None)


def listed(cli: Cli) -> dict[str, dict[str, Any]]:
    done = cli("skills", "list", "--json")
    assert done.returncode == 0, done.stderr
    return {skill["name"]: skill for skill in json.loads(done.stdout)}


def test_a_skill_is_listed_and_loaded_once(run: Run, llm: ScriptedLLM, home: Path) -> None:
    place = add_skill(home, "pdf", "Run ${CLAUDE_SKILL_DIR}/scripts/read.py.")
    (place / "scripts").mkdir()
    (place / "scripts" / "read.py").write_text("print(1)")
    view = Reply(calls=[Call("view", {"file_path": str(place / "scripts" / "read.py")})])
    llm.script(load("pdf"), load("pdf"), view, "Done.")
    assert run("read it").code == 0
    assert "- pdf: About pdf" in system(llm)
    tool = skill_tool(llm)
    assert tool and tool["parameters"]["properties"]["name"]["enum"] == ["pdf"]
    first, second, file = results(llm)
    assert f"Run {place}/scripts/read.py." in first and "Files in its folder: scripts/read.py" in first
    assert "loaded already" in second and "Run" not in second
    assert "print(1)" in file
    assert len({json.dumps(request.body["tools"]) for request in llm.requests}) == 1


def test_skills_are_neither_offered_nor_imported_when_there_are_none(
    run: Run, llm: ScriptedLLM, cli: Cli, workspace: Path
) -> None:
    llm.script("Done.")
    assert run("hello").code == 0
    assert skill_tool(llm) is None and "Skills" not in system(llm)
    code = "import sys, runpy; sys.argv = ['crushpy', 'run', '-m', 'demo/tour', 'hi']\n"
    code += "import os; os._exit = lambda code: print(sorted(m for m in sys.modules if 'extensions' in m))\n"
    code += "import crushpy.cli; crushpy.cli.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=workspace)
    assert "crushpy.bootstrap.user_extensions" in done.stdout and "crushpy.extensions" not in done.stdout, (
        done.stdout + done.stderr
    )


def test_a_trusted_project_comes_before_the_user(
    run: Run, llm: ScriptedLLM, home: Path, workspace: Path, cli: Cli, tmp_path: Path
) -> None:
    add_skill(home, "one", "The user's.")
    add_skill(tmp_path / "user" / ".agents", "two")
    add_skill(tmp_path / "user" / ".claude", "three")
    add_skill(workspace / ".crushpy", "one", "The project's.")
    add_skill(workspace / ".agents", "four")
    add_skill(workspace / ".claude", "five")
    assert set(listed(cli)) == {"one", "two", "three"}, "an untrusted project adds nothing"
    llm.script(load("four"), load("one"), "Done.")
    run("go")
    missing, loaded = results(llm)
    assert "There is no skill 'four'. There are: one, two, three." in missing
    assert "The user's." in loaded
    assert cli("trust").returncode == 0
    llm.script(load("one"), "Done.")
    run("go")
    assert "The project's." in results(llm)[0]
    found = json.loads(cli("skills", "list", "--json").stdout)
    assert [(entry["name"], entry["origin"], entry["status"]) for entry in found] == [
        ("one", "project", "loaded"),
        ("four", "project", "loaded"),
        ("five", "project", "loaded"),
        ("one", "user", "refused"),
        ("two", "user", "loaded"),
        ("three", "user", "loaded"),
    ]


def test_a_later_skill_is_announced_and_callable_but_changes_nothing_before(
    run: Run, llm: ScriptedLLM, home: Path
) -> None:
    add_skill(home, "first")
    llm.script("Done.")
    run("hello")
    before, tools = system(llm), llm.requests[-1].body["tools"]
    add_skill(home, "second", description="For later")
    llm.script(load("second"), "Done.")
    run("-c", "and now")
    assert system(llm) == before and llm.requests[-1].body["tools"] == tools
    prompts = [
        message["content"] for message in llm.requests[-1].body["messages"] if message["role"] == "user"
    ]
    assert "New skills" in prompts[-1] and "- second: For later" in prompts[-1]
    assert "Do second well." in results(llm)[0]
    llm.script("Done.")
    run("-c", "again")
    prompts = [
        message["content"] for message in llm.requests[-1].body["messages"] if message["role"] == "user"
    ]
    assert "New skills" not in prompts[-1], "it was announced already"


@pytest.mark.parametrize("count", [30, 400])
def test_descriptions_are_shortened_evenly_before_any_skill_is_dropped(
    run: Run, llm: ScriptedLLM, home: Path, count: int
) -> None:
    for number in range(count):
        add_skill(home, f"skill-{number:03}", description="word " * (20 if number else 180))
    llm.script("Done.")
    run("hello")
    listing = system(llm).split("<skills>\n")[1].split("\n</skills>")[0]
    rows = [row for row in listing.splitlines() if row.startswith("- ")]
    assert len(listing) <= 4 * 2_560, "a fiftieth of 128,000 tokens"
    lengths = [len(row.partition(": ")[2]) for row in rows]
    if count == 30:
        assert len(rows) == 30 and min(lengths) == 99 and max(lengths) > 500
    else:
        assert "more are not listed" in listing or len(rows) == count
        assert max(lengths) - min(lengths) <= 1
    tool = skill_tool(llm)
    assert tool and len(tool["parameters"]["properties"]["name"]["enum"]) == len(rows)


HEADS = {
    "no-head": ("Just text.", "warned", "no frontmatter"),
    "no-end": ("---\nname: x\nText", "warned", "no end"),
    "no-end-lines": ("---\r\ndescription: A\r\n\r\nText", "warned", "its frontmatter has no end"),
    "colons": ("---\nname: colons\ndescription: Use when: asked\n---\nText", "warned", "not valid YAML"),
    "other": ("---\nname: another\ndescription: d\n---\nText", "warned", "differs from its folder"),
    "bad-name": ("---\nname: a b/../c\ndescription: d\n---\nText", "warned", "cannot be used"),
    "unknown": ("---\nname: unknown\ndescription: d\nfoo: 1\n---\nText", "warned", "unknown fields: foo"),
    "quiet": ("---\nname: quiet\n---\nText", "warned", "no description"),
    "empty": ("---\nname: empty\ndescription: d\n---\n\n", "refused", "no text"),
    "binary": ("\0\0", "refused", "not a text file"),
    "huge": ("x" * 500_001, "refused", "more than 500,000 bytes"),
    "long-head": (f"---\nname: {'x' * 30_000}\n---\nText", "refused", "more than 20,000 characters"),
    "bomb": ("---\na: &a [1]\nb: [*a, *a]\n---\nText", "refused", "aliases or tags"),
    "tagged": ("---\na: !!python/object/apply:os.system [ls]\n---\nText", "refused", "aliases or tags"),
    "deep": (f"---\nname: {'[' * 10_000}\n---\nText", "warned", "not valid YAML"),
}


def test_every_file_is_loaded_warned_or_refused_with_the_reason(home: Path, cli: Cli) -> None:
    for name, (text, _, _) in HEADS.items():
        (add_skill(home, name) / "SKILL.md").write_text(text)
    found = {
        Path(skill["file"]).parent.name: skill for skill in json.loads(cli("skills", "list", "--json").stdout)
    }
    rows = cli("skills", "list").stdout.splitlines()
    report = cli("doctor").stdout.splitlines()
    assert found.keys() == HEADS.keys() and found["no-end-lines"]["description"] == "A"
    for name, (_, status, reason) in HEADS.items():
        one = found[name]
        assert (one["status"], reason in one["reason"]) == (status, True), one
        assert any(row.startswith(status) and one["name"] in row and reason in row for row in rows), name
        assert any(name in line and f"is {status}" in line and reason in line for line in report), name


def test_links_are_not_followed_out_of_the_folders(home: Path, cli: Cli, tmp_path: Path) -> None:
    outside = add_skill(tmp_path / "elsewhere", "outside")
    skills = add_skill(home, "plain").parent
    (skills / "linked").symlink_to(outside)
    (skills / "file").mkdir()
    (skills / "file" / "SKILL.md").symlink_to(outside / "SKILL.md")
    (skills / "broken").mkdir()
    (skills / "broken" / "SKILL.md").symlink_to(tmp_path / "nothing")
    (skills / "circle").symlink_to(skills)
    (skills / "pipe").mkdir()
    os.mkfifo(skills / "pipe" / "SKILL.md")
    (skills / "folder" / "SKILL.md").mkdir(parents=True)
    (skills / "own").symlink_to(skills / "plain")
    found = listed(cli)
    assert {name: entry["status"] for name, entry in found.items()} == {
        "plain": "loaded",
        "linked": "refused",
        "file": "refused",
        "broken": "refused",
        "pipe": "refused",
        "folder": "refused",
    }
    assert "leads out" in found["linked"]["reason"] and "leads out" in found["file"]["reason"]


def test_files_behind_a_link_out_of_a_skill_need_a_question(
    run: Run, llm: ScriptedLLM, home: Path, tmp_path: Path
) -> None:
    place = add_skill(home, "pdf")
    (tmp_path / "secret.txt").write_text("secret")
    (place / "more.txt").symlink_to(tmp_path / "secret.txt")
    llm.script(Reply(calls=[Call("view", {"file_path": str(place / "more.txt")})]), "Done.")
    assert run("look").code == 3
    assert "secret" not in results(llm)[0].replace("secret.txt", "")


def test_allowed_tools_of_a_skill_grant_nothing(run: Run, llm: ScriptedLLM, home: Path) -> None:
    place = add_skill(home, "pdf")
    (place / "SKILL.md").write_text("---\nname: pdf\ndescription: d\nallowed-tools: Bash(*)\n---\nText")
    llm.script(load("pdf"), Reply(calls=[Call("bash", {"command": "touch made"})]), "Done.")
    assert run("go").code == 3
    assert "Permission needed" in results(llm)[1]


@pytest.mark.skipif(find_sandbox().name != "bubblewrap", reason=f"no bubblewrap: {find_sandbox().why_not}")
def test_scripts_of_a_skill_run_in_the_sandbox(
    run: Run, llm: ScriptedLLM, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRUSHPY_SANDBOX__AUTO_ALLOW", "true")
    place = add_skill(home, "pdf")
    (place / "read.sh").write_text("echo from the script; touch $(dirname $0)/made")
    (home / "private.txt").write_text("hidden")
    command = f"sh {place}/read.sh; cat {home}/private.txt"
    llm.script(Reply(calls=[Call("bash", {"command": command})]), "Done.")
    assert run("go").code == 0
    (text,) = results(llm)
    assert "from the script" in text and "hidden" not in text
    assert not (place / "made").exists()


def test_plugins_are_added_listed_and_removed(
    run: Run, llm: ScriptedLLM, home: Path, cli: Cli, tmp_path: Path
) -> None:
    plugin = tmp_path / "tools"
    add_skill(plugin, "pdf", "From ${CLAUDE_PLUGIN_ROOT}.")
    add_skill(home, "own")
    (plugin / "plugin.json").write_text('{"name": "docs", "version": "1.0", "skills": "./more/skills/x"}')
    add_skill(plugin / "more", "x")
    assert "docs was added, with skills." in cli("plugins", "add", str(plugin)).stdout
    (plugin / "skills" / "pdf" / "SKILL.md").write_text("changed later")
    (one,) = json.loads(cli("plugins", "list", "--json").stdout)
    assert (one["name"], one["version"], one["contents"]) == ("docs", "1.0", ["skills"])
    assert set(listed(cli)) == {"own", "pdf", "x"}
    llm.script(load("pdf"), load("docs:pdf"), "Done.")
    assert run("go").code == 0
    assert f"From {home}/plugins/docs." in results(llm)[0] and "loaded already" in results(llm)[1]
    assert cli("plugins", "remove", "docs").returncode == 0 and set(listed(cli)) == {"own"}
    assert cli("plugins", "remove", "docs").returncode == 2
    assert "No plugin is installed" in cli("plugins", "list").stdout


def test_claude_codes_plugins_and_bad_ones(cli: Cli, tmp_path: Path) -> None:
    plugin = tmp_path / "mine"
    (plugin / ".claude-plugin").mkdir(parents=True)
    manifest = plugin / ".claude-plugin" / "plugin.json"
    manifest.write_text('{"name": "mine"}')
    assert "has no skills" in cli("plugins", "add", str(plugin)).stderr
    (plugin / "agents").mkdir()
    (plugin / "agents" / "a.md").write_text("---\nname: a\ndescription: d\n---\nText")
    assert cli("plugins", "add", str(plugin)).returncode == 0
    for text in ("{", "[]", '{"name": "../x"}', '{"name": 3}', "[" * 100_000):
        manifest.write_text(text)
        done = cli("plugins", "add", str(plugin))
        assert done.returncode == 2 and "is not a plugin" in done.stderr, done.stderr
    manifest.write_text('{"name": "mine"}')
    (plugin / "out").symlink_to("/etc")
    assert "leads out of the plugin" in cli("plugins", "add", str(plugin)).stderr
    (plugin / "out").unlink()
    os.mkfifo(plugin / "pipe")
    assert "not a regular file" in cli("plugins", "add", str(plugin)).stderr
    assert "not a folder" in cli("plugins", "add", str(plugin / "nothing")).stderr


@pytest.mark.parametrize("named", [False, True])
def test_a_manifest_has_mcp_servers_or_names_their_file(cli: Cli, tmp_path: Path, named: bool) -> None:
    servers = {"notes": {"command": "${CLAUDE_PLUGIN_ROOT}/serve", "args": ["--fast"]}}
    plugin = tmp_path / "mine"
    (plugin / ".claude-plugin").mkdir(parents=True)
    (plugin / "their.json").write_text(json.dumps(servers))
    manifest = {"name": "mine", "mcpServers": "./their.json" if named else servers}
    (plugin / ".claude-plugin" / "plugin.json").write_text(json.dumps(manifest))
    assert "with mcpServers" in cli("plugins", "add", str(plugin)).stdout
    (one,) = json.loads(cli("mcp", "list", "--json").stdout)["servers"]
    assert one["name"] == "notes" and one["command"].endswith("plugins/mine/serve --fast")
    manifest["mcpServers"] = "../../outside.json"
    (plugin / ".claude-plugin" / "plugin.json").write_text(json.dumps(manifest))
    cli("plugins", "add", str(plugin))
    assert json.loads(cli("mcp", "list", "--json").stdout)["servers"] == []
