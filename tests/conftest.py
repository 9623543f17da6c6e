"""What every test may use: a home of its own, a workspace of its own, and the real command line."""

import gc
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from support.command import Cli, can_run_in_process, run_crushpy
from support.in_process import call_crushpy
from support.selection import ALL

pytest_plugins = [
    "scripted_llm.fixtures",
    "support.postgres_server",
    "support.databases",
    "support.talk",
    "support.headless",
    "support.fleet_workers",
    "support.eager",
    "support.certificates",
    "support.keyrings",
    "support.list_server",
    "support.ollama_server",
    "support.acp_client",
]

# Test modules are compiled once, whatever the variables say: their assertions are rewritten for that.
sys.dont_write_bytecode = False
LEFT_OUT = {"nightly": "bin/nightly", "slow": "bin/check --all"}
"""Marks, and what runs the tests that have them."""
TOO_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
KEPT = ("PATH", "TMPDIR", "TZ", "VIRTUAL_ENV", "CRUSHPY_BUBBLEWRAP")
KEPT_FAMILIES = ("PYTHON", "PYTEST", "TEXTUAL_SNAPSHOT", "LD_", "COV")


def pytest_configure(config: pytest.Config) -> None:
    _same_examples(config)
    # Started in the background or by nohup, we would hand ignored signals down to everything we start.
    for number, usual in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
        (signal.SIGQUIT, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


def _same_examples(config: pytest.Config) -> None:
    """The same examples in every run, however slow it is; `--hypothesis-profile=default` looks further."""
    settings.register_profile(
        "same",
        derandomize=True,
        deadline=None,
        suppress_health_check=TOO_SLOW,
        max_examples=100 if ALL else 40,
    )
    if not config.getoption("--hypothesis-profile"):
        settings.load_profile("same")
        # It would also draw what stands in the modules that happen to be loaded: others in every worker.
        providers._get_local_constants = lambda: providers._local_constants


IN_TMP = Path(__file__).is_relative_to("/tmp")
left_out: "pytest.StashKey[Counter[str]]" = pytest.StashKey()


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    config = items[0].config
    if not config.option.keyword:
        marks = (next((name for name in LEFT_OUT if item.get_closest_marker(name)), "") for item in items)
        config.stash.setdefault(left_out, Counter()).update(filter(None, marks))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever needs the PostgreSQL server is slow, and cases that `sampled` leaves out are nightly."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if "postgres" in {group.args[0] for group in item.iter_markers("xdist_group")}:
            item.add_marker("slow")
        if IN_TMP and item.get_closest_marker("outside_tmp"):
            item.add_marker(pytest.mark.skip(reason="the checkout is below /tmp, where the sandbox hides it"))
        mark = item.get_closest_marker("sampled")
        renews = item.config.getoption("update_snapshots", False)
        if mark is not None and mark.kwargs and not (ALL or renews):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for number, same in enumerate(cases.values()):  # tests of one list begin at different cases
        mark = same[0].get_closest_marker("sampled")
        every = min(mark.kwargs["every"], len(same)) if mark else 1
        for index, item in enumerate(same):
            if index % every != number % every:
                item.add_marker("nightly")


def pytest_collection_finish() -> None:
    """What the collection made stays: no need to look through it in each garbage collection."""
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = dict(session.config.stash.get(left_out, Counter()))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Each worker of xdist has left out the same ones."""
    node.config.stash[left_out] = Counter(getattr(node, "workeroutput", {}).get("left_out", {}))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    counted = config.stash.get(left_out, Counter())
    if counted:
        numbers = ", ".join(f"{counted[name]:,} {name} ({LEFT_OUT[name]})" for name in sorted(counted))
        terminalreporter.write_line(f"Tests left out: {numbers}.")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh CRUSHPY_HOME, and nothing of this machine's keys, settings, colours and servers."""
    folder = tmp_path / "home"
    for name in list(os.environ):
        if name not in KEPT and not name.startswith(KEPT_FAMILIES):
            monkeypatch.delenv(name)
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("CRUSHPY_HOME", str(folder))
    monkeypatch.setenv("CRUSHPY_LOCAL_PORTS", "")
    # Questions are the same on machines with and without a sandbox; tests of it take this away.
    monkeypatch.setenv("CRUSHPY_SANDBOX__AUTO_ALLOW", "false")
    # Small windows are quick to fill, with all tools; tests of the profile for them take this away.
    monkeypatch.setenv("CRUSHPY_PROFILE", "full")
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    (tmp_path / "user").mkdir()
    return folder


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in; the current directory of the test."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def cli(workspace: Path) -> Cli:
    """Runs a command of the real crushpy: `cli("config", "list", env={...}, stdin="...")`.

    In this process if that makes no difference, otherwise (`process=True`) in one of its own.
    """

    def run(
        *args: str,
        env: dict[str, str] | None = None,
        stdin: str = "",
        cwd: Path | None = None,
        timeout: float = 110,
        process: bool = False,
    ) -> "subprocess.CompletedProcess[str]":
        if args and not process and can_run_in_process(args, env):
            return call_crushpy(*args, env=env, stdin=stdin, cwd=cwd or workspace)
        return run_crushpy(*args, env=env, stdin=stdin, cwd=cwd or workspace, timeout=timeout)

    return run
