"""A list on workers of this machine, some killed: `python -m benchmarks.fleet [--tasks N] [--kills K]`.

Each scripted task writes a file in one call and ends. Prints what was lost, accepted twice or run twice, and
how long everything took. Needs a PostgreSQL server and git.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from scripted_llm import Call, Reply, ScriptedLLM
from support.postgres_server import Server

STARTING_S = 5.0


def answer(body: dict[str, Any]) -> Reply:
    name = str(body["messages"][1]["content"]).split("\n")[0]
    results = [str(message["content"]) for message in body["messages"] if message["role"] == "tool"]
    if results and results[-1].startswith("Created"):  # a call that was cut off is asked for again
        return Reply(f"{name} is done.")
    return Reply(calls=[Call("write", {"file_path": f"{name}.txt", "content": name})])


class Machine:
    """One worker after the other in the same home."""

    def __init__(self, folder: Path, env: dict[str, str], slots: int) -> None:
        folder.mkdir(mode=0o700)
        self._folder, self._env, self._slots = folder, {**env, "CRUSHPY_HOME": str(folder)}, slots
        self.process = self.start()

    def start(self) -> "subprocess.Popen[bytes]":
        with (self._folder / "output.txt").open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "crushpy", "worker", "--slots", str(self._slots)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._folder,
                env=self._env,
            )
        return self.process


def idle_figures(process: int, seconds: float) -> tuple[float, float]:
    """The memory in MB and the share of one CPU that a worker and its process for the next task use. Memory
    that processes share is divided among them."""
    time.sleep(STARTING_S)
    both = [process, *map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split())]
    ticks = [sum(map(_ticks, both))]
    time.sleep(seconds)
    ticks.append(sum(map(_ticks, both)))
    lines = [line for one in both for line in Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()]
    memory = sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return memory / 1_000, 100 * (ticks[1] - ticks[0]) / os.sysconf("SC_CLK_TCK") / seconds


def _ticks(process: int) -> int:
    return sum(map(int, Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--restart", action="store_true", help="Restart PostgreSQL in the middle.")
    parser.add_argument("--reasons", action="store_true", help="List the dead attempts.")
    parser.add_argument("--idle", type=float, default=10, help="Seconds for which an idle worker is watched.")
    options = parser.parse_args()
    server = Server(max_connections=200)
    folder = Path(tempfile.mkdtemp(prefix="crushpy-fleet-"))
    machines: list[Machine] = []
    with ScriptedLLM() as llm:
        llm.always(answer)
        try:
            run(options, server, folder, machines, llm)
        finally:
            for machine in machines:
                machine.process.kill()
                machine.process.wait()
            server.remove()


def run(
    options: argparse.Namespace, server: Server, folder: Path, machines: list[Machine], llm: ScriptedLLM
) -> None:
    name = server.fresh()
    env = {**os.environ, **llm.env, "CRUSHPY_MODEL": "openai/test-model", "CRUSHPY_LOCAL_PORTS": ""}
    env["CRUSHPY_DATABASE_URL"] = server.url(name)
    work = folder / "work"
    work.mkdir()
    for words in (["init", "-q"], ["config", "user.name", "A"], ["config", "user.email", "a@b"]):
        subprocess.run(["git", "-C", str(work), *words], check=True)
    (work / "a.txt").write_text("one\n")
    subprocess.run(["git", "-C", str(work), "add", "-A"], check=True)
    subprocess.run(["git", "-C", str(work), "commit", "-qm", "first"], check=True)
    tasks = [{"prompt": f"task{n}", "name": f"task{n}", "needs": []} for n in range(options.tasks)]
    (folder / "list.json").write_text(json.dumps(tasks))
    machines += [
        Machine(folder / f"machine{number}", env, options.slots) for number in range(options.workers)
    ]

    def ask(statement: str) -> list[tuple[Any, ...]]:
        import psycopg

        with psycopg.connect(server.url(name), options="-c search_path=crushpy") as connection:
            return connection.execute(statement.encode()).fetchall()

    while len(ask("SELECT 1 FROM pg_tables WHERE tablename = 'fleet_worker'")) < 1:
        time.sleep(0.2)
    while ask("SELECT count(*) FROM fleet_worker")[0][0] < options.workers:
        time.sleep(0.2)
    memory, share = idle_figures(machines[0].process.pid, options.idle)
    print(f"an idle worker: {memory:.0f} MB, {share:.2f}% of a CPU")
    began = time.monotonic()
    submitted = subprocess.Popen(
        [
            *(sys.executable, "-m", "crushpy", "run", "--tasks", str(folder / "list.json")),
            *("--fleet", "--detach", "--allow", "write", "--format", "json"),
        ],
        cwd=work,
        env={**env, "CRUSHPY_HOME": str(folder / "home")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    while not llm.requests:
        time.sleep(0.01)
    print(f"from the command to the first request: {time.monotonic() - began:.2f} s")
    kills, restarted, chosen = 0, not options.restart, random.Random(1)
    while True:
        time.sleep(0.5)
        done = ask("SELECT count(*) FROM listed_task WHERE state NOT IN ('waiting', 'running')")[0][0]
        if submitted.poll() is not None and done >= options.tasks:
            break
        if kills < options.kills and done >= (kills + 1) * options.tasks / (options.kills + 1):
            machine = chosen.choice(machines)
            machine.process.kill()
            machine.process.wait()
            machine.start()
            kills += 1
        if not restarted and done >= options.tasks / 2:
            restarted = True
            server.stop()
            time.sleep(3)
            server.start()
    seconds = time.monotonic() - began
    states = dict(ask("SELECT state, count(*) FROM listed_task GROUP BY state"))
    reports = ask("SELECT count(*), count(DISTINCT number) FROM listed_task WHERE result_id <> ''")[0]
    twice = ask(
        "SELECT count(*) FROM (SELECT args FROM tool_run WHERE is_error IS NOT TRUE GROUP BY args "
        "HAVING count(*) > 1) AS again"
    )[0][0]
    results = ask("SELECT count(DISTINCT name) FROM output WHERE name LIKE 'fleet-result-%'")[0][0]
    deaths = ask("SELECT sum(jsonb_array_length(deaths::jsonb)) FROM fleet_task")[0][0]
    reasons = ask("SELECT deaths FROM fleet_task WHERE deaths <> '[]'")
    print(f"{options.tasks} tasks in {seconds:.0f} s on {options.workers} workers, {kills} killed: {states}")
    print(f"results: {reports[0]}, branches: {results}, dead attempts: {deaths}, calls run twice: {twice}")
    for (reason,) in reasons if options.reasons else ():
        print(f"  {reason}")


if __name__ == "__main__":
    main()
