"""A real browser without a window: Chromium, driven over its DevTools protocol."""

import asyncio
import base64
import itertools
import os
import shutil
import subprocess
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import aiohttp

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium here (Debian: apt-get install chromium)"
)
START_TIMEOUT_S = 60
ANSWER_TIMEOUT_S = 60


class BrowserPage:
    """One page, with all that its console and its policy complained about in `complaints`."""

    def __init__(self, socket: "aiohttp.ClientWebSocketResponse") -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._events: dict[str, asyncio.Event] = {}
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for received in self._socket:
            message = received.json()
            if "id" in message:
                self._answers.pop(message["id"]).set_result(message)
                continue
            name, details = message["method"], message.get("params", {})
            if name == "Network.requestWillBeSent":
                self.requests.append(details["request"]["url"])
            elif name == "Runtime.exceptionThrown":
                self.complaints.append(str(details["exceptionDetails"]))
            elif name == "Runtime.consoleAPICalled" and details["type"] in ("error", "warning", "assert"):
                self.complaints.append(str(details["args"]))
            elif name == "Log.entryAdded":  # violations of the policy, and failed requests
                self.complaints.append(details["entry"]["text"])
            self._events.setdefault(name, asyncio.Event()).set()

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        self._answers[number] = answer = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        message = await asyncio.wait_for(answer, ANSWER_TIMEOUT_S)
        assert "error" not in message, message
        return message["result"]

    async def open(self, page: Path | str) -> float:
        """Opens a file or an address; seconds until it was loaded, and its scripts had run."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")
        loaded = self._events["Page.loadEventFired"] = asyncio.Event()
        began = time.monotonic()
        await self.call("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        await asyncio.wait_for(loaded.wait(), ANSWER_TIMEOUT_S)
        await self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return time.monotonic() - began

    async def run(self, script: str) -> Any:
        """The value of an expression; promises are awaited."""
        done = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    async def until(self, script: str) -> Any:
        """Waits until an expression is true."""
        return await self.run(
            f"new Promise(done => {{ const look = () => {{ const found = ({script});"
            " found ? done(found) : setTimeout(look, 20); }; look(); })"
        )

    async def press(self, key: str, text: str = "") -> None:
        """Presses and releases a key."""
        typed = {"text": text} if text else {}
        await self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **typed)
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    async def type(self, text: str) -> None:
        await self.call("Input.insertText", text=text)

    async def picture(self) -> bytes:
        return base64.b64decode((await self.call("Page.captureScreenshot", format="png"))["data"])

    async def printed(self) -> bytes:
        """The page as PDF."""
        return base64.b64decode((await self.call("Page.printToPDF"))["data"])

    def close(self) -> None:
        self._reading.cancel()


@asynccontextmanager
async def open_web_browser(folder: Path, *options: str) -> AsyncGenerator[BrowserPage]:
    """Chromium with a profile of its own in `folder`, and an empty page in it."""
    assert CHROMIUM is not None
    profile = folder / "chromium"
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    fixed = ["--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    quiet = ["--disable-background-networking", "--disable-component-update", "--window-size=1280,900"]
    process = subprocess.Popen(
        [
            CHROMIUM,
            *root,
            *fixed,
            *quiet,
            *options,
            "--remote-debugging-port=0",
            f"--user-data-dir={profile}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8", "TZ": "UTC"},
    )
    try:
        port = await _debugging_port(profile / "DevToolsActivePort", process)
        import aiohttp

        async with aiohttp.ClientSession() as http:
            async with http.get(f"http://127.0.0.1:{port}/json") as listed:
                address = next(entry for entry in await listed.json() if entry["type"] == "page")
            async with http.ws_connect(address["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                page = BrowserPage(socket)
                try:
                    yield page
                finally:
                    page.close()
    finally:
        process.kill()
        process.wait()


async def _debugging_port(file: Path, process: "subprocess.Popen[bytes]") -> int:
    """Chromium writes its port to a file once it listens."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            pytest.skip(f"Chromium does not start here (exit code {process.returncode})")
        if file.exists() and (lines := file.read_text().splitlines()):
            return int(lines[0])
        await asyncio.sleep(0.05)
    raise TimeoutError("Chromium did not start")
