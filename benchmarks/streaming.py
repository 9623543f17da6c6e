"""What the transcript costs: streaming, opening a long session, paging, and markdown made to stall it.

    .venv/bin/python -m benchmarks.streaming            everything (about two minutes)
    .venv/bin/python -m benchmarks.streaming rate open  only these: full, rate, open, stall

Each figure comes from a process of its own: a small app with a transcript and an input, on a pty of 120 x 40.
Compare figures of one run on one machine, not with those of another.
"""

import asyncio
import json
import os
import pty
import resource
import select
import struct
import subprocess
import sys
import termios
import time
import tracemalloc
from fcntl import ioctl
from functools import partial

from benchmarks.samples import chunks, everyday, pathological

PARTS = ("full", "rate", "open", "stall", "drawn200", "drawn20", "slow200", "slow20")
LINK_BYTES_PER_S = 2_000
"""What the terminal takes in the parts `slow`."""
ANSWER_BYTES = 1_000
COLUMNS, LINES = 120, 40


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2])
        return
    for part in sys.argv[1:] or PARTS:
        for name, value in run(part).items():
            print(f"{part:6} {name:76} {value}", flush=True)


def run(part: str) -> dict[str, str]:
    """The figures of one child, which draws on a pty that is read and thrown away."""
    terminal, end = pty.openpty()
    ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    report, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.streaming", "--child", part],
        stdin=end,
        stdout=end,
        stderr=end,
        env={**os.environ, "REPORT": str(write), "TERM": "xterm-256color"},
        pass_fds=(write,),
        start_new_session=True,
    )
    os.close(end)
    os.close(write)
    drawn = 0
    tail = b""
    while process.poll() is None or select.select([terminal], [], [], 0)[0]:
        if select.select([terminal], [], [], 0.1)[0]:
            slow = part.startswith("slow") and drawn > 8_000  # the first picture is not counted
            try:
                data = os.read(terminal, LINK_BYTES_PER_S // 10 if slow else 1 << 16)
            except OSError:
                break
            drawn += len(data)
            if slow:
                time.sleep(0.1)
            tail = (tail + data)[-4_000:]
    with open(report, encoding="utf-8") as file:
        said = file.read()
    if process.wait() or not said:
        sys.exit(f"the benchmark failed:\n{tail.decode(errors='replace')}")
    figures: dict[str, str] = json.loads(said)
    if part in ("full", "rate"):
        figures["kB drawn"] = f"{drawn / 1000:.0f}"
    if "drawn before" in figures:
        answer = drawn - int(figures.pop("drawn before"))
        figures["bytes drawn for each byte of the answer"] = f"{answer / ANSWER_BYTES:.1f}"
    return figures


def child(part: str) -> None:
    from textual.app import App, ComposeResult
    from textual.widgets import Input

    from crushpy.tui.themes import STRIP_DARK
    from crushpy.tui.transcript.widget import Transcript

    figures: dict[str, str] = {}

    class Host(App[None]):
        CSS = "Input { dock: bottom; }"

        def get_theme_variable_defaults(self) -> dict[str, str]:
            return STRIP_DARK

        def compose(self) -> ComposeResult:
            yield Transcript()
            yield Input()

        def on_ready(self) -> None:
            self.query_one(Input).focus()
            self.run_worker(self.measure())

        async def measure(self) -> None:
            await asyncio.sleep(0.5)
            await MEASURES[part](self.query_one(Transcript), figures)
            self.exit()

    Host().run()
    with open(int(os.environ["REPORT"]), "w", encoding="utf-8") as file:
        json.dump(figures, file)


class Clock:
    """Wall and CPU time since it was made, and how much CPU the event loop used at most without a break.

    CPU, because on a busy machine other processes would be counted as stalls of ours.
    """

    def __init__(self, *, watch: bool = False) -> None:
        self._wall = time.perf_counter()
        self._cpu = _cpu()
        self.worst = 0.0
        self._watcher = asyncio.ensure_future(self._watch()) if watch else None

    def wall(self) -> float:
        return time.perf_counter() - self._wall

    def cpu(self) -> float:
        return _cpu() - self._cpu

    async def stop(self) -> None:
        await asyncio.sleep(0.01)
        if self._watcher is not None:
            self._watcher.cancel()

    async def _watch(self) -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0.0005)
            self.worst = max(self.worst, time.thread_time() - before)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def _drawn(view: "Transcript") -> None:
    while view._frame_timer or view._work_timer:  # noqa: ASYNC110
        await asyncio.sleep(0.005)


async def full_speed(view: "Transcript", figures: dict[str, str]) -> None:
    for watch in (False, True):
        clock = Clock(watch=watch)
        key = view.add(ReplyItem("", done=False))
        for number, chunk in enumerate(chunks(everyday())):
            view.stream(key, chunk)
            if number % 10 == 9:
                await asyncio.sleep(0)
        view.finish(key)
        await _drawn(view)
        to_screen = clock.wall()
        if watch:
            await clock.stop()
            figures["most CPU at a time, ms"] = f"{clock.worst * 1000:.0f}"
        else:
            figures["3,000 chunks: s to the last line"] = f"{to_screen:.2f}"
            figures["3,000 chunks: CPU s, with all colours"] = f"{clock.cpu():.2f}"


async def steady_rate(view: "Transcript", figures: dict[str, str]) -> None:
    for watch in (False, True):
        pieces = chunks(everyday())[: 600 if watch else 3_000]
        clock = Clock(watch=watch)
        key = view.add(ReplyItem("", done=False))
        for number, chunk in enumerate(pieces):
            view.stream(key, chunk)
            await asyncio.sleep(max(0.0, (number + 1) / 200 - clock.wall()))
        view.finish(key)
        await _drawn(view)
        if watch:
            await clock.stop()
            figures["most CPU at a time, ms"] = f"{clock.worst * 1000:.0f}"
        else:
            figures["200 a second for 15 s: CPU s"] = f"{clock.cpu():.2f}"


async def long_session(view: "Transcript", figures: dict[str, str]) -> None:
    items: list[TranscriptItem] = []
    text = everyday(1_500)
    for number in range(2_500):
        items.append(UserItem(f"Prompt {number}: please look at file_{number}.py and fix it"))
        items.append(ToolItem(str(number), "bash", f"pytest -k {number}", output="passed\n" * 20))
        items.append(ReplyItem(f"Answer {number}.\n\n{text[number % 700 :]}"))
        items.append(ToolItem(str(number), "view", f"file_{number}.py", output="line\n" * 50))
    before = _memory()
    clock = Clock()
    view.set_items(items)
    figures["open 10,000 items, ms"] = f"{clock.cpu() * 1000:.0f}"
    await _drawn(view)
    figures["resident memory that it added, MB"] = f"{_memory() - before:.1f}"
    times: list[float] = []
    for _ in range(60):
        clock = Clock()
        view.interaction.page(-1)
        times.append(clock.cpu())
        await asyncio.sleep(0.02)
    times.sort()
    figures["page up, ms: median / worst of 60"] = f"{times[30] * 1000:.1f} / {times[-1] * 1000:.1f}"
    clock = Clock()
    view.action_scroll_home()
    figures["to the first item, ms"] = f"{clock.cpu() * 1000:.1f}"
    clock = Clock()
    view.fold_all(False)
    figures["open everything that is folded, ms"] = f"{clock.cpu() * 1000:.1f}"
    view.set_items([])
    tracemalloc.start()
    view.set_items(items)
    await _drawn(view)
    figures["objects of the view, MB (without the items)"] = f"{tracemalloc.get_traced_memory()[0] / 1e6:.1f}"
    tracemalloc.stop()


async def stalls(view: "Transcript", figures: dict[str, str]) -> None:
    for name, text in pathological().items():
        clock = Clock(watch=True)
        key = view.add(ReplyItem("", done=False))
        for at in range(0, len(text), 5_000):
            view.stream(key, text[at : at + 5_000])
            await asyncio.sleep(0.003)
        view.finish(key)
        await _drawn(view)
        await clock.stop()
        streamed = clock.worst
        clock = Clock(watch=True)
        await asyncio.sleep(0.005)
        view.set_items([ReplyItem(text)])
        await _drawn(view)
        await clock.stop()
        figures[f"{name}: most CPU at a time, ms streamed / whole"] = (
            f"{streamed * 1000:.0f} / {clock.worst * 1000:.0f}"
        )
        view.set_items([])


def _memory() -> float:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


async def few_chunks(transcript: "Transcript", figures: dict[str, str], rate: int) -> None:
    """A short answer in chunks of five bytes, so many a second."""
    text = everyday(ANSWER_BYTES)
    key = transcript.add(ReplyItem("", done=False))
    clock = Clock()
    for number, chunk in enumerate(chunks(text, len(text) // 5), 1):
        transcript.stream(key, chunk)
        await asyncio.sleep(max(0.0, number / rate - clock.wall()))
    transcript.finish(key)
    await asyncio.sleep(1.5)
    figures["drawn before"] = "0"


RATES = {f"{kind}{rate}": partial(few_chunks, rate=rate) for kind in ("drawn", "slow") for rate in (200, 20)}
MEASURES = RATES | {"full": full_speed, "rate": steady_rate, "open": long_session, "stall": stalls}

if __name__ == "__main__":
    if "--child" in sys.argv:
        from crushpy.tui.items import ReplyItem, ToolItem, TranscriptItem, UserItem
        from crushpy.tui.transcript.widget import Transcript
    main()
