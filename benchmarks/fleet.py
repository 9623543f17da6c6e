"""A list on workers of this machine, some killed: `python -m benchmarks.fleet [--tasks N] [--kills K]`.

Each scripted task writes a file in one call and ends. Prints what was lost, accepted twice or run twice, how
long tasks of killed workers waited, and the CPU time of a task, also of the same one without a fleet.
`--starts N` measures only the time from the command to the first request. Needs a PostgreSQL server and git.
"""

import argparse
import json
import os
import random
import resource
import shutil
import statistics
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
LOCAL_TASKS = 20
UNFINISHED = "state IN ('waiting', 'running')"


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

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def worker(self) -> str:
        """The name of its worker, or of its last one."""
        lines = (self._folder / "output.txt").read_text().splitlines()
        started = [line for line in lines if line.startswith("Worker ") and ": crushpy " in line]
        return started[-1].split()[1].rstrip(":") if started else ""

    def processes(self) -> list[int]:
        """The worker, and the process that waits for tasks."""
        number = self.process.pid
        return [number, *map(int, Path(f"/proc/{number}/task/{number}/children").read_text().split())]

    def cpu_s(self, *, ended: bool) -> float:
        """The CPU time of these processes; `ended`: also of those of tasks that have ended."""
        times = [
            Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            for process in self.processes()
        ]
        ticks = sum(int(tick) for fields in times for tick in fields[11 : 15 if ended else 13])
        return ticks / os.sysconf("SC_CLK_TCK")

    def idle_figures(self, seconds: float) -> tuple[float, float, float]:
        """The memory in MB, shared memory divided among processes and counted for each, and the share of one
        CPU that they use."""
        time.sleep(STARTING_S)
        before = self.cpu_s(ended=False)
        time.sleep(seconds)
        share = 100 * (self.cpu_s(ended=False) - before) / seconds
        files = [Path(f"/proc/{process}/smaps_rollup").read_text() for process in self.processes()]
        lines = [line.split() for file in files for line in file.splitlines()[1:]]
        sizes = [sum(int(line[1]) for line in lines if line[0] == name) / 1_000 for name in ("Pss:", "Rss:")]
        return sizes[0], sizes[1], share


class Bench:
    """A server, a repository, a scripted model and machines with workers."""

    def __init__(self, options: argparse.Namespace, llm: ScriptedLLM) -> None:
        self.options, self.llm = options, llm
        self.server = Server(max_connections=200)
        self.name = self.server.fresh()
        self.folder = Path(tempfile.mkdtemp(prefix="crushpy-fleet-"))
        self.env = {**os.environ, **llm.env, "CRUSHPY_MODEL": "openai/test-model", "CRUSHPY_LOCAL_PORTS": ""}
        self.env["CRUSHPY_DATABASE_URL"] = self.server.url(self.name)
        work = self.folder / "work"
        work.mkdir()
        for words in (["init", "-q"], ["config", "user.name", "A"], ["config", "user.email", "a@b"]):
            subprocess.run(["git", "-C", str(work), *words], check=True)
        (work / "a.txt").write_text("one\n")
        subprocess.run(["git", "-C", str(work), "add", "-A"], check=True)
        subprocess.run(["git", "-C", str(work), "commit", "-qm", "first"], check=True)
        self.machines = [
            Machine(self.folder / f"machine{number}", self.env, options.slots)
            for number in range(options.workers)
        ]
        while not self.ask("SELECT 1 FROM pg_tables WHERE tablename = 'fleet_worker'"):
            time.sleep(0.2)
        while self.ask("SELECT count(*) FROM fleet_worker")[0][0] < options.workers:
            time.sleep(0.2)

    def close(self) -> None:
        for machine in self.machines:
            machine.kill()
        self.server.remove()
        shutil.rmtree(self.folder, ignore_errors=True)

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        import psycopg

        with psycopg.connect(
            self.env["CRUSHPY_DATABASE_URL"], options="-c search_path=crushpy"
        ) as connection:
            return connection.execute(statement.encode()).fetchall()

    def submit(self, tasks: int, *flags: str) -> "subprocess.Popen[bytes]":
        listed = [
            {"prompt": f"task{n}", "name": f"task{n}", "needs": [], "worktree": True} for n in range(tasks)
        ]
        (self.folder / "list.json").write_text(json.dumps(listed))
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "crushpy", "run", "--tasks", str(self.folder / "list.json")),
                *("--allow", "write", "--format", "json", *flags),
            ],
            cwd=self.folder / "work",
            env={**self.env, "CRUSHPY_HOME": str(self.folder / "home")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )

    def first_request_s(self) -> float:
        """Submits a list of one task and waits for its end."""
        self.llm.requests.clear()
        began = time.monotonic()
        submitted = self.submit(1, "--fleet", "--detach")
        while not self.llm.requests:
            assert not submitted.poll(), "the list was refused"
            time.sleep(0.005)
        seconds = time.monotonic() - began
        submitted.wait()
        while self.ask(f"SELECT 1 FROM listed_task WHERE {UNFINISHED}"):
            time.sleep(0.1)
        return seconds

    def local_cpu_s(self) -> float:
        """The CPU time of a task of a list without a fleet; the start is not counted."""
        used: list[float] = []
        for tasks in (1, 1 + LOCAL_TASKS):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            assert self.submit(tasks, "--parallel", "2").wait() == 0
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return (used[1] - used[0]) / LOCAL_TASKS

    def work_through(self) -> None:
        options, kills, restarted, chosen = self.options, 0, False, random.Random(1)
        killed: dict[int, tuple[int, float]] = {}
        """The tokens of tasks whose worker was killed, and when that was."""
        waited = [0.0]
        cpu = [machine.cpu_s(ended=True) for machine in self.machines]
        known = self.ask("SELECT root_id FROM task_list")
        began = time.monotonic()
        submitted = self.submit(options.tasks, "--fleet", "--detach")
        while (roots := self.ask("SELECT root_id FROM task_list")) == known:
            assert not submitted.poll(), "the list was refused"
            time.sleep(0.1)
        root = next(iter({*roots} - {*known}))[0]
        listed = f"listed_task l JOIN fleet_task f USING (root_id, number) WHERE root_id = '{root}'"
        while True:
            time.sleep(0.5)
            rows = self.ask(f"SELECT number, {UNFINISHED}, token, worker FROM {listed}")
            done = sum(not unfinished for _, unfinished, _, _ in rows)
            for number, unfinished, token, _ in rows:
                if number in killed and (not unfinished or token not in (0, killed[number][0])):
                    waited.append(time.monotonic() - killed.pop(number)[1])
            if submitted.poll() is not None and rows and done == options.tasks:
                break
            if kills < options.kills and done >= (kills + 1) * options.tasks / (options.kills + 1):
                machine = chosen.choice(self.machines)
                name = machine.worker
                machine.kill()
                cpu = []
                lost = {number: token for number, _, token, who in rows if token and who == name}
                killed |= {number: (token, time.monotonic()) for number, token in lost.items()}
                machine.start()
                kills += 1
            if options.restart and not restarted and done >= options.tasks / 2:
                restarted = True
                self.server.stop()
                time.sleep(options.outage)
                self.server.start()
        seconds = time.monotonic() - began
        states = dict(self.ask(f"SELECT state, count(*) FROM {listed} GROUP BY state"))
        results = self.ask(f"SELECT count(*) FROM {listed} AND result_id <> ''")[0][0]
        twice = self.ask(
            "SELECT count(*) FROM (SELECT args FROM tool_run JOIN session s ON s.id = session_id "
            f"WHERE s.root_id = '{root}' AND is_error IS NOT TRUE GROUP BY args HAVING count(*) > 1) AS again"
        )[0][0]
        branches = self.ask(
            f"SELECT count(DISTINCT name) FROM output WHERE root_id = '{root}' AND name LIKE 'fleet-result-%'"
        )[0][0]
        deaths = self.ask(f"SELECT sum(jsonb_array_length(deaths::jsonb)) FROM {listed}")[0][0]
        print(
            f"{options.tasks} tasks in {seconds:.0f} s on {options.workers} workers, {kills} killed: {states}"
        )
        print(f"results: {results}, branches: {branches}, dead attempts: {deaths}, calls run twice: {twice}")
        if kills:
            print(f"tasks of killed workers ran again after at most {max(waited):.0f} s (lease: 45 s)")
        if cpu:  # none was killed
            used = sum(machine.cpu_s(ended=True) for machine in self.machines) - sum(cpu)
            print(f"CPU of a task: {used / options.tasks:.2f} s; locally {self.local_cpu_s():.2f} s")
        if options.reasons:
            print(*self.ask(f"SELECT deaths FROM {listed} AND deaths <> '[]'"), sep="\n")


def main() -> None:
    sys.stdout.reconfigure(line_buffering=True)  # pyright: ignore[reportAttributeAccessIssue]
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--restart", action="store_true", help="Restart PostgreSQL in the middle.")
    parser.add_argument("--outage", type=float, default=3, help="Seconds without PostgreSQL, with --restart.")
    parser.add_argument("--reasons", action="store_true", help="List the dead attempts.")
    parser.add_argument("--idle", type=float, default=10, help="Seconds for which an idle worker is watched.")
    parser.add_argument("--starts", type=int, default=0, help="Only this many lists of one task.")
    options = parser.parse_args()
    with ScriptedLLM() as llm:
        llm.always(answer)
        bench = Bench(options, llm)
        try:
            divided, counted, share = bench.machines[0].idle_figures(options.idle)
            print(f"an idle worker: {divided:.0f} MB (sum of RSS: {counted:.0f}), {share:.2f}% of a CPU")
            times = [bench.first_request_s() for _ in range(options.starts or 1)]
            middle = statistics.median(times)
            extent = f"{min(times):.2f} to {max(times):.2f}"
            print(f"from the command to the first request: {middle:.2f} s (of {len(times)}: {extent})")
            if not options.starts:
                bench.work_through()
        finally:
            bench.close()


if __name__ == "__main__":
    main()
