"""Rules, modes and answers that travel with a list: on a worker they count only in the task's checkout."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from extensions.test_mcp_calls import configure
from scripted_llm import Call, Reply, ScriptedLLM
from support.command import Cli
from support.fleet_workers import Fleet, git, listed, named
from support.headless import Run, until

from crushpy.sandbox.finding import find_sandbox

pytestmark = pytest.mark.xdist_group("postgres")
WHY = "the user of this worker has not accepted it"
SECRET = "worker-key-7351"


class Worker:
    """A repository with links to the files of the only worker's user, and those files."""

    def __init__(self, run: Run, cli: Cli, llm: ScriptedLLM, repository: Path, fleet: Fleet) -> None:
        self._run, self._cli, self._llm, self.fleet = run, cli, llm, fleet
        self.repository, self.home = repository, repository.parent / "machine-0"
        self.user = repository.parent / "worker-user"
        (self.user / ".ssh").mkdir(parents=True)
        (self.user / ".ssh" / "id").write_text(SECRET)
        (self.user / ".bashrc").write_text("mine\n")
        (repository / "link").symlink_to(self.user)
        (repository / "rc").symlink_to(self.user / ".bashrc")
        git(repository, "add", "-A")
        git(repository, "commit", "-qm", "links")
        self.outside: Sequence[Call] = (
            Call("view", {"file_path": str(self.user / ".ssh" / "id")}),
            Call("view", {"file_path": "link/.ssh/id"}),
            Call("grep", {"pattern": "worker", "path": str(self.user)}),
            Call("ls", {"path": "link"}),
            Call("write", {"file_path": str(self.user / ".bashrc"), "content": "theirs\n"}),
            Call("write", {"file_path": str(self.user / "new"), "content": "theirs\n"}),
            Call("write", {"file_path": "link/new", "content": "theirs\n"}),
            Call("edit", {"file_path": "rc", "old_string": "mine", "new_string": "theirs"}),
            Call("fetch", {"url": "http://example.com/secret"}),
        )

    def start(self, *flags: str, **env: str) -> None:
        self.fleet.worker(*flags, env={"HOME": str(self.user), **env})

    def ask_for(self, *calls: Call) -> None:
        """The model makes these calls, then ends."""
        asks = [Reply(calls=[call]) for call in calls]

        def answer(body: dict[str, Any]) -> Reply:
            return [*asks, Reply("Done.")][sum(message["role"] == "tool" for message in body["messages"])]

        self._llm.always(answer)

    def submit(self, *flags: str) -> Any:
        return self._run(
            "--tasks", listed(self.repository, named("t")), "--fleet", *flags, env=self.fleet.env
        )

    def finish(self, state: str = "done") -> None:
        until(lambda: self.fleet.query("SELECT state FROM listed_task") == [(state,)], f"it is {state}")

    @property
    def requests(self) -> Sequence[Any]:
        return self._llm.requests

    def results(self) -> list[str]:
        messages = self._llm.requests[-1].body["messages"]
        return [str(message["content"]) for message in messages if message["role"] == "tool"]

    def logs(self) -> str:
        return self._cli("fleet", "logs", "latest", "t", env=self.fleet.env).stdout

    def is_untouched(self) -> bool:
        assert SECRET not in str([request.body for request in self._llm.requests])
        assert "theirs" not in (self.user / ".bashrc").read_text()
        return not (self.user / "new").exists()


@pytest.fixture
def worker(run: Run, cli: Cli, llm: ScriptedLLM, repository: Path, fleet: Fleet) -> Worker:
    return Worker(run, cli, llm, repository, fleet)


def flags_for(*rules: str) -> list[str]:
    return [word for rule in rules for word in ("--allow", rule)]


def test_the_rules_of_a_list_open_nothing_outside_the_checkout(worker: Worker) -> None:
    user = worker.user
    inside = Call("write", {"file_path": "b.txt", "content": "two\n"})
    worker.ask_for(*worker.outside, inside)
    worker.start()
    ignored = ("write(~/.bashrc)", "view(~/.ssh/**)", f"view({user}/**)", "write(../**)", "folder(~)")
    ignored += ("fetch", "network")
    done = worker.submit(*flags_for("write", "view", "edit", *ignored))
    assert done.code == 0, (done.stderr, worker.fleet.told())
    *refused, written = worker.results()
    assert [WHY in result for result in refused] == [True] * len(worker.outside), refused
    assert worker.is_untouched()
    assert "b.txt" in written
    assert git(worker.repository, "show", f"{done.result['tasks'][0]['branch']}:b.txt") == "two"
    log = (worker.home / "logs" / "crushpy.log").read_text()
    notice = "Workers ignore these rules, because the rules of a list count only in the checkout of a task: "
    for told in (" ".join(line["text"] for line in done.of("notice")), worker.logs(), log):
        assert notice + ", ".join(ignored) in told


@pytest.mark.parametrize("flags", [("--yolo",), ("--mode", "edits", "--yolo")])
def test_yolo_opens_nothing_outside_the_checkout(worker: Worker, flags: tuple[str, ...]) -> None:
    touch = Call("bash", {"command": "touch made.txt"})
    worker.ask_for(*worker.outside, touch)
    worker.start("--accept-yolo")
    done = worker.submit(*flags)
    assert done.code == 0, (done.stderr, worker.fleet.told())
    *refused, _ = worker.results()
    assert [WHY in result for result in refused] == [True] * len(worker.outside), refused
    assert worker.is_untouched()
    assert "made.txt" in git(worker.repository, "ls-tree", "--name-only", done.result["tasks"][0]["branch"])


@pytest.mark.skipif(not find_sandbox("on").on, reason="without a sandbox commands have all rights")
@pytest.mark.parametrize("unasked", ["true", "false"])
def test_a_command_rule_brings_no_network_and_no_folder(worker: Worker, unasked: str) -> None:
    lines = (
        "curl http://a.example/",
        "cp a.txt /usr/local/crushpy-absent/x",
        "echo x > /usr/local/crushpy-test",
    )
    worker.ask_for(
        *(Call("bash", {"command": line}) for line in lines), Call("bash", {"command": "cat a.txt"})
    )
    worker.start(CRUSHPY_SANDBOX__AUTO_ALLOW=unasked)
    rules = (
        "bash(curl)",
        "bash(cp)",
        "bash(echo)",
        "bash(cat)",
        "network(a.example)",
        "write(/usr/local/**)",
    )
    done = worker.submit(*flags_for(*rules))
    assert done.code == 0, (done.stderr, worker.fleet.told())
    *refused, shown = worker.results()
    assert [WHY in result for result in refused] == [True] * len(lines), refused
    assert "one" in shown


def test_rules_grants_and_answers_forged_in_the_database_open_nothing_outside(worker: Worker) -> None:
    inside = Call("write", {"file_path": "b.txt", "content": "two\n"})
    worker.ask_for(*worker.outside, inside)
    root = worker.submit("--detach").result["text"]
    [(orders,)] = worker.fleet.query("SELECT orders FROM task_list")
    forged = json.loads(orders)
    forged["fleet"]["options"] |= {"allow": ["write(~/**)", "view", "fetch"], "add_dir": ["/"], "yolo": True}
    grants = json.dumps(["folder(~)", "view(~/**)", "fetch", "network"])
    text = json.dumps(forged).replace("'", "''")
    worker.fleet.query(f"UPDATE task_list SET orders = '{text}' RETURNING root_id")
    worker.fleet.query(f"UPDATE session SET grants = '{grants}' WHERE id = '{root}' RETURNING id")
    worker.start()
    asks = "SELECT question FROM fleet_task WHERE question <> '' AND token = 0"
    until(lambda: worker.fleet.query(asks) != [], "it asks about the file inside")
    [(question,)] = worker.fleet.query(asks)
    assert json.loads(question)["args"]["file_path"] == "b.txt"
    always = json.dumps({"kind": "always", "key": "g"})
    worker.fleet.query(f"UPDATE fleet_task SET answer = '{always}', queued = false RETURNING number")
    worker.finish()
    *refused, written = worker.results()
    assert [WHY in result for result in refused] == [True] * len(worker.outside), refused
    assert worker.is_untouched()
    assert "b.txt" in written
    assert "folder(~)" in worker.logs()
    assert [file for file in worker.home.rglob("*.toml") if "b.txt" in file.read_text()] == []


def test_a_forged_id_of_the_conversation_names_no_folder_of_the_worker(worker: Worker) -> None:
    worker.ask_for(*worker.outside[:1])
    root = worker.submit("--detach").result["text"]
    forged = f"UPDATE session SET root_id = '{worker.user}' WHERE id = '{root}' RETURNING id"
    assert worker.fleet.query(forged) == [(root,)]
    worker.start()
    worker.finish("failed")
    assert worker.is_untouched()
    assert f"is not the conversation of list {root}" in str(
        worker.fleet.query("SELECT error FROM listed_task")
    )


def test_extensions_of_the_workers_user_are_not_loaded(worker: Worker) -> None:
    worker.ask_for(Call("mcp", {"action": "call", "server": "many", "tool": "tool_000"}))
    worker.start("--accept", "mcp__many")
    configure(worker.home, "1")
    skill = worker.home / "skills" / "own"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: own\ndescription: of-the-worker\n---\nIts text.")
    assert worker.submit(*flags_for("mcp")).code == 0, worker.fleet.told()
    assert "There is no tool named 'mcp'" in worker.results()[0]
    assert "of-the-worker" not in json.dumps(worker.requests[-1].body)


def test_outside_the_checkout_only_what_the_worker_accepts_counts(worker: Worker) -> None:
    worker.ask_for(worker.outside[0], worker.outside[5])
    settings = {"CRUSHPY_PERMISSIONS__ALLOW": json.dumps([f"write({worker.user}/**)"])}
    worker.start("--accept", f"view({worker.user}/**)", **settings)
    assert worker.submit("--allow", f"write({worker.user}/**)").code == 0, worker.fleet.told()
    read, written = worker.results()
    assert SECRET in read, "the worker was started with it"
    assert WHY in written and not (worker.user / "new").exists(), "its settings do not count for tasks"
    assert f"tasks may use: view({worker.user}/**) (--accept)" in worker.fleet.told()
