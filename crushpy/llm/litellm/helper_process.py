"""litellm's own process as the app sees it: started when needed, watched, ended when nobody needs it.

It loads beside the app, so nothing here waits for that: frames go into a pipe and come out of one. The app
may run several event loops one after the other (the pipes are taken along), but not two at once.
"""

import asyncio
import atexit
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from itertools import count
from pathlib import Path

import msgspec

import crushpy
from crushpy.llm.errors import CutStream, ModelError, TimedOut, Unavailable
from crushpy.llm.litellm.frames import (
    AppFrame,
    Broken,
    Failed,
    Forgotten,
    HelperFrame,
    LetGo,
    LineReader,
    Ping,
    Pong,
    ProviderAccess,
    Ready,
    Said,
    Stop,
    decode_helper_frame,
    encode_frame,
)
from crushpy.llm.litellm.histories import SentHistories
from crushpy.llm.protocol import Request

LOAD_PATIENCE = 120.0
"""Seconds that litellm may take to load: a cold disk and a busy machine are slow."""
QUIET = 10.0
"""Seconds without a word, while somebody waits, after which the process is asked whether it lives."""
ANSWER_PATIENCE = 20.0
"""Seconds it may take to answer that."""
IDLE = 300.0
"""Seconds without a call after which it ends: it holds 250 MB."""
_READ = 1 << 16
_STDERR_KEPT = 2_000

# The folder of crushpy is an argument, since it need not be installed; the current folder is not looked in.
_START = (
    "import sys; root = sys.argv[1]; root in sys.path or sys.path.insert(0, root); "
    "from crushpy.llm.litellm.helper import main; main()"
)
_NEXT_REQUEST = "The next request starts a new one."

Heard = Said | Failed | ModelError

_current: "HelperProcess | None" = None


def helper_process() -> "HelperProcess":
    """The one that all providers share; started where there is none."""
    global _current  # noqa: PLW0603
    if _current is None or _current.ended:
        _current = HelperProcess()
    return _current


def running_helper() -> "HelperProcess | None":
    return None if _current is None or _current.ended else _current


class HelperProcess:
    """Belongs to the running event loop; `ended` once no call can be made through it any more."""

    def __init__(self) -> None:
        """Raises Unavailable where no process can be started."""
        root = str(Path(crushpy.__file__).parents[1])
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, root],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=_environment(),
                start_new_session=True,  # Ctrl-C in the terminal is for the app
            )
        except OSError as error:
            raise Unavailable(f"The process that runs litellm could not be started: {error}.") from error
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._in, self._out, self._err = (
            pipe.fileno() for pipe in (self._process.stdin, self._process.stdout, self._process.stderr)
        )
        for pipe in (self._in, self._out, self._err):
            os.set_blocking(pipe, False)
        self.ready = False
        self.ended = False
        self._started = time.monotonic()
        self._numbers = count(1)
        self._inboxes: dict[int, asyncio.Queue[Heard]] = {}
        self._asked: dict[int, tuple[int, ProviderAccess, Request]] = {}
        """What each call asked for, whole."""
        self._histories = SentHistories()
        self.sent = 0
        """Bytes that were written to it, or wait to be."""
        self._lines = LineReader()
        self._unsent = bytearray()
        self._stderr = b""
        self._broken = ""
        """Why litellm cannot be loaded."""
        self._alive: asyncio.Event | None = None
        """Set by the next frame, where somebody doubts that there will be one."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._idle: asyncio.TimerHandle | None = None
        atexit.register(self.end)
        self._attach()
        self._rest()

    @property
    def pid(self) -> int:
        return self._process.pid

    # --- calls

    def ask(self, provider: int, access: ProviderAccess, request: Request) -> int:
        """Sends a request; what comes back is had by `answer`, until `forget`."""
        self._attach()
        if self._idle is not None:
            self._idle.cancel()
        call = next(self._numbers)
        self._inboxes[call] = asyncio.Queue()
        self._asked[call] = (provider, access, request)
        self._send(self._histories.ask(call, provider, access, request))
        return call

    async def answer(self, call: int) -> Said:
        """The next thing that is said to a call. Raises ModelError where it failed."""
        inbox = self._inboxes[call]
        heard = await self._wait(inbox) if inbox.empty() else inbox.get_nowait()
        if isinstance(heard, Said):
            return heard
        raise heard.error() if isinstance(heard, Failed) else heard

    async def _wait(self, inbox: "asyncio.Queue[Heard]") -> "Heard":
        while True:
            try:
                async with asyncio.timeout(QUIET):
                    return await inbox.get()
            except TimeoutError:
                await self._require_life()

    def forget(self, call: int, *, stop: bool) -> None:
        """Nobody waits for this call any more. `stop`: it was not answered to its end."""
        self._inboxes.pop(call, None)
        self._asked.pop(call, None)
        if self.ended:
            return
        if stop:
            self._send(Stop(call))
        self._rest()

    def let_go(self, provider: int) -> None:
        self._attach()
        self._histories.let_go(provider)
        self._send(LetGo(provider))

    def _rest(self) -> None:
        """Counts the time without a call from now on."""
        if self._inboxes or self._loop is None or self._loop.is_closed():
            return
        if self._idle is not None:
            self._idle.cancel()
        self._idle = self._loop.call_later(IDLE, self.end)

    # --- the pipes

    def _attach(self) -> None:
        """Listens in the event loop that runs now."""
        loop = asyncio.get_running_loop()
        if self._loop is loop or self.ended:
            return
        self._detach()
        self._loop = loop
        loop.add_reader(self._out, self._read)
        loop.add_reader(self._err, self._read_stderr)
        self._write()

    def _detach(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._out)
            self._loop.remove_reader(self._err)
            self._loop.remove_writer(self._in)
        self._loop = None

    def _send(self, frame: AppFrame) -> None:
        data = encode_frame(frame)
        self.sent += len(data)
        self._unsent += data
        self._write()

    def _write(self) -> None:
        """Writes what the pipe takes, and the rest when it takes more."""
        try:
            while self._unsent:
                del self._unsent[: os.write(self._in, self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent.clear()  # its end is seen where we read
        if self._loop is None or self._loop.is_closed():
            return
        if self._unsent:
            self._loop.add_writer(self._in, self._write)
        else:
            self._loop.remove_writer(self._in)

    def _read(self) -> None:
        try:
            data = os.read(self._out, _READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._fail(self._death())
            return
        if self._alive is not None:
            self._alive.set()
        try:
            for line in self._lines.feed(data):
                self._take(decode_helper_frame(line))
        except (msgspec.MsgspecError, RecursionError) as error:
            self._fail(CutStream(f"The process that runs litellm ({self.pid}) cannot be understood: {error}"))

    def _read_stderr(self) -> None:
        """Nothing of it is shown, but its last line may say why the process ended."""
        try:
            data = os.read(self._err, _READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._stderr = (self._stderr + data)[-_STDERR_KEPT:]
        if not data and self._loop is not None:
            self._loop.remove_reader(self._err)

    def _take(self, frame: HelperFrame) -> None:
        match frame:
            case Said() | Failed():
                if (inbox := self._inboxes.get(frame.call)) is not None:
                    inbox.put_nowait(frame)
            case Forgotten():
                if (asked := self._asked.get(frame.call)) is not None:
                    self._send(self._histories.ask_whole(frame.call, *asked))
            case Ready():
                self.ready = True
            case Broken():
                self._broken = frame.message
            case Pong():
                pass

    # --- its end

    async def _require_life(self) -> None:
        """Ends a process that says nothing any more, or that does not come to an end with loading."""
        if not self.ready and time.monotonic() - self._started > LOAD_PATIENCE:
            self._fail(TimedOut(f"litellm was not loaded within {LOAD_PATIENCE:g} s. {_NEXT_REQUEST}"))
            return
        if self._alive is None:
            self._alive = asyncio.Event()
            self._send(Ping())
        try:
            async with asyncio.timeout(ANSWER_PATIENCE):
                await self._alive.wait()
        except TimeoutError:
            if not self._alive.is_set():
                self._fail(
                    TimedOut(f"The process that runs litellm ({self.pid}) does not answer. {_NEXT_REQUEST}")
                )
        finally:
            self._alive = None

    def _death(self) -> ModelError:
        """Why it ended by itself."""
        with suppress(OSError):
            self._stderr += os.read(self._err, _READ)
        if self._broken:
            return ModelError(
                f"litellm could not be loaded: {self._broken}",
                "Install crushpy anew, or choose a model that needs no litellm (`crushpy models`).",
            )
        how = f"The process that runs litellm ({self.pid}) {self._exit()}."
        return (CutStream if self.ready else Unavailable)(f"{how} {_NEXT_REQUEST}")

    def _exit(self) -> str:
        try:
            code = self._process.wait(1)
        except subprocess.TimeoutExpired:
            return "closed its pipe"
        if code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        from crushpy.security.redact import redact

        said = redact(self._stderr.decode("utf-8", "replace").strip().rpartition("\n")[2])[:200]
        return f"ended with exit code {code}{f': {said}' if said else ''}"

    def _fail(self, error: ModelError) -> None:
        """Every call gets the error; the next one gets a new process."""
        for inbox in self._inboxes.values():
            inbox.put_nowait(error)
        self.end()

    def end(self) -> None:
        """Kills it, for litellm is slow to leave; nobody waits for that."""
        if self.ended:
            return
        self.ended = True
        atexit.unregister(self.end)
        self._detach()
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        threading.Thread(target=self._process.wait, daemon=True).start()


def _environment() -> dict[str, str]:
    """The app's, with the keys in it; without what would put the current folder among Python's."""
    environment = dict(os.environ)
    folders = environment.pop("PYTHONPATH", "").split(os.pathsep)
    if kept := [folder for folder in folders if Path(folder).is_absolute()]:
        environment["PYTHONPATH"] = os.pathsep.join(kept)
    # Without bytecode litellm takes twice as long to load, each time. Nothing of the user's is loaded here,
    # so it is crushpy's own folder that bytecode is kept in.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment
