"""What configured MCP servers cost: `python -m benchmarks.mcp [RUNS]`.

The first request of `crushpy run` with and without five servers (one never answers), the modules that are
imported for them, the tokens of a hundred tools until they are used, and the memory of the process.
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))

from scripted_llm.server import ScriptedLLM  # noqa: E402
from support.mcp_connection import connect  # noqa: E402

from crushpy.extensions.mcp.mcp_process import McpProcess  # noqa: E402
from crushpy.extensions.mcp.wire import McpOrder, ServerSpec  # noqa: E402
from crushpy.llm.tokens import Counter  # noqa: E402

STAND_IN = str(TESTS / "support" / "mcp_stand_in.py")


def configure(home: Path, servers: int) -> None:
    lines: list[str] = []
    for number in range(servers):
        words = ["100", "silent"] if number == 0 else ["100"]
        lines += [f"[mcp.server{number}]", f"command = {json.dumps(sys.executable)}"]
        lines += [f"args = {json.dumps([STAND_IN, *words])}"]
    home.mkdir()
    home.chmod(0o700)
    (home / "config.toml").write_text("\n".join(lines) + "\n")


def run_once(llm: ScriptedLLM, home: Path, *options: str) -> tuple[float, str]:
    """Seconds until the first request arrives, and what was written to stderr."""
    llm.script("Hello.")
    seen = len(llm.requests)
    environment = {**os.environ, **llm.env, "CRUSHPY_HOME": str(home), "CRUSHPY_MODEL": "openai/test-model"}
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *options, "-m", "crushpy", "run", "hi"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
        cwd=home,
        text=True,
    )
    while len(llm.requests) == seen and process.poll() is None:
        time.sleep(0.0005)
    took = time.perf_counter() - began
    return took, process.communicate()[1]


def imported(llm: ScriptedLLM, home: Path) -> set[str]:
    _, errors = run_once(llm, home, "-X", "importtime")
    return {
        line.rpartition("|")[2].strip() for line in errors.splitlines() if line.startswith("import time:")
    }


async def process_memory() -> float:
    process = McpProcess()
    spec = ServerSpec(command=sys.executable, args=(STAND_IN, "100"), env=dict(os.environ))
    await connect(process, spec)
    await process.carry_out(McpOrder("call", "one", "tool_001"))
    status = Path(f"/proc/{process.pid}/status").read_text()
    process.end()
    return int(status.split("VmRSS:")[1].split()[0]) / 1_024


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    with ScriptedLLM() as llm, tempfile.TemporaryDirectory() as folder:
        plain, five = Path(folder) / "plain", Path(folder) / "five"
        configure(plain, 0)
        configure(five, 5)
        for home in (plain, five):
            run_once(llm, home)
        times: dict[Path, list[float]] = {plain: [], five: []}
        for _ in range(runs):
            for home, taken in times.items():
                taken.append(run_once(llm, home)[0])
        without, with_five = (min(taken) * 1_000 for taken in times.values())
        medians = [statistics.median(taken) * 1_000 for taken in times.values()]
        print(
            f"first request, best of {runs}: {without:.0f} ms without servers, {with_five:.0f} ms with five"
        )
        print(f"first request, median: {medians[0]:.0f} ms and {medians[1]:.0f} ms")
        more = imported(llm, five) - imported(llm, plain)
        print(f"modules imported for them: {', '.join(sorted(more)) or 'none'}")
        tools = llm.requests[-2].body["tools"], llm.requests[-1].body["tools"]
        bridge = max(tools, key=len)[-1]
        counter = Counter("openai/gpt-5")
        counter.start()
        counter.wait(30)
        print(f"tokens of 500 tools until used: {counter.count(json.dumps(bridge))[0]}")
    print(f"memory of the process, connected: {asyncio.run(process_memory()):.0f} MB")


if __name__ == "__main__":
    main()
