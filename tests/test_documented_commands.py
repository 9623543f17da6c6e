"""Commands in code blocks of README.md and docs/ work with the demo model; the site has no dead link."""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from support.command import Cli
from support.foreign_files import write_claude, write_codex
from support.web_browser import needs_chromium, open_web_browser

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^    (crushpy .*)$", re.MULTILINE)
COMMAND = re.compile(r"(?:\$ )?crushpy (.*?)(?:\s+#.*|\s{3,}.*|\s+\|.*)?$")
OPTIONAL = re.compile(r"\[([^\]|]*)[^\]]*\]")
NOT_RUN = {
    "needs a terminal": re.compile(r"-|\"|template edit|connect|$"),
    "needs a prompt, or a model with eyes": re.compile(r"run .*(\.\.\.|\.png)"),
    "needs a server of the user's": re.compile(r"mcp |worker|config set database_url|run --tasks .*--fleet"),
}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TASKS = (
    '[[tasks]]\nname = "one"\nprompt = "look around"\n[[tasks]]\nname = "two"\nprompt = "read README.md"\n'
)
PLUGIN = {"name": "NAME", "version": "1.0.0", "description": "An example."}


def commands(page: Path) -> list[str]:
    """The commands in its blocks, without comments; of alternatives in brackets the first."""
    text = page.read_text()
    blocks = (block for language, block in BLOCK.findall(text) if language in ("", "console", "sh", "bash"))
    lines = [line for block in (*blocks, *INDENTED.findall(text)) for line in block.splitlines()]
    found = [OPTIONAL.sub(r"\1", match[1]) for line in lines if (match := COMMAND.match(line))]
    return [line for line in found if not any(why.match(line) for why in NOT_RUN.values())]


@pytest.fixture
def prepared(cli: Cli, workspace: Path) -> dict[str, str]:
    """A project with two conversations; what stands for an id in the pages, and what is there."""
    for name in ("README.md", "docs/api.md", "src/a.py"):
        (workspace / name).parent.mkdir(exist_ok=True)
        (workspace / name).write_text("A line.\n" * 200)
    for name in ("a.md", "b.md", "mine.md"):
        (workspace / name).write_text(cli("template", "show", "summary").stdout)
    (workspace / "list.toml").write_text(TASKS)
    manifest = workspace / "FOLDER/.claude-plugin/plugin.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(json.dumps(PLUGIN))
    (workspace / "FOLDER/commands").mkdir()
    (workspace / "FOLDER/commands/hello.md").write_text("Say hello.\n")
    subprocess.run(["git", "init", "-q"], check=True)
    for prompt in (["look around"], ["-c", "read README.md"], ["-c", "read README.md"]):
        done = cli("run", "--model", "demo/tour", "--format", "json", *prompt)
        assert done.returncode == 0, done.stderr
    session = json.loads(done.stdout)["session_id"]
    cli("sessions", "rules", session, "--add", "Never push to main.")
    shown = json.loads(cli("sessions", "context", session, "--json").stdout)
    results = [row["message_id"] for row in shown["rows"] if row["kind"] == "tool output"]
    prompt = next(row["message_id"] for row in shown["rows"] if row["kind"] == "user")
    return {"ID": session, "MESSAGE": results[-1], "PROMPT": prompt, "j2qb6r4e": prompt}


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.stem)
def test_documented_commands_do_what_the_page_says(
    page: Path, cli: Cli, prepared: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRUSHPY_MODEL", "demo/tour")
    for command in commands(page):
        names = {**prepared, "PATH": "."}
        if "rewind" in command:
            names["MESSAGE"] = prepared["PROMPT"]
        elif "import" in command:
            names |= {
                "FILE": str(write_claude(tmp_path / "user")),
                "PATH": str(write_codex(tmp_path / "user")),
            }
        elif "--revoke" in command:
            cli("trust", ".")
            names["ID"] = json.loads(cli("trust", "--list", "--json").stdout)[0]["id"]
        words = [names.get(word, word) for word in shlex.split(command)]
        done = cli(*words, timeout=120)
        expected = 3 if "--output=notes" in command else 0  # shown as what is asked about
        assert done.returncode == expected, f"{page.name}: crushpy {command}\n{done.stdout}\n{done.stderr}"


def test_the_commands_are_found() -> None:
    assert sum(len(commands(page)) for page in PAGES) > 65
    assert [commands(page) for page in PAGES if page.name == "audit.md"] == [["audit show"]]


in_one_process = pytest.mark.xdist_group("site")


@pytest.fixture(scope="module")
def site() -> Path:
    """The documentation site, without a dead link or anchor."""
    done = subprocess.run([ROOT / "bin/docs", "--build"], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return ROOT / "build/site"


@in_one_process
def test_site_links_nothing_that_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.glob("*.html"):
        loaded = re.findall(r"<(?:script|link|img)\b[^>]*?(?:src|href)=\"(https?:[^\"]*)", page.read_text())
        assert loaded == [], page


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    """The site on loopback: browsers do not search pages opened from disk."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@needs_chromium
@in_one_process
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
async def test_site_is_readable_in_a_browser(address: str, tmp_path: Path, width: int, scheme: str) -> None:
    async with open_web_browser(tmp_path, f"--window-size={width},900") as page:
        preferred = [{"name": "prefers-color-scheme", "value": scheme}]
        await page.call("Emulation.setEmulatedMedia", features=preferred)
        for name in ("index", "quick-start", "settings", "benchmarks"):
            await page.open(f"{address}/{name}.html")
            assert await page.run("document.querySelector('h1') !== null")
            assert await page.run("document.documentElement.scrollWidth <= window.innerWidth"), name
            shown = await page.run("document.body.getAttribute('data-md-color-scheme')")
            assert shown == ("slate" if scheme == "dark" else "default")
        assert [link for link in page.requests if link.startswith("http") and address not in link] == []


@needs_chromium
@in_one_process
async def test_search_finds_a_page(address: str, tmp_path: Path) -> None:
    async with open_web_browser(tmp_path, "--window-size=1400,900") as page:
        await page.open(f"{address}/index.html")
        await page.run("document.querySelector('.md-search__input').focus()")
        await page.type("undo-compaction")
        found = "document.querySelector('.md-search-result__link')"
        await page.until(found)
        assert "compaction" in (await page.run(f"{found}.innerText")).lower()
