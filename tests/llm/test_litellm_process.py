"""litellm's own process: how it starts, what becomes of the app when it breaks, and of it when the app does.

Most tests put a small stand-in in litellm's place, which loads at once and answers as its prompt asks.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conversing import ask, hear
from support.headless import until
from support.litellm_stand_in import STAND_IN, plant
from support.process_state import alive

from crushpy.llm import errors
from crushpy.llm.errors import CutStream, ModelError, Unavailable
from crushpy.llm.litellm import provider as module
from crushpy.llm.litellm.provider import (
    CallReply,
    LiteLLMProcess,
    LiteLLMProvider,
    ProviderAccess,
    begin_loading,
    decode_answer,
)
from crushpy.llm.protocol import TextPiece
from crushpy.util.helper_process import encode_line


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No process runs yet, and none is left behind; the one that other tests share is kept for them."""
    monkeypatch.setattr(LiteLLMProcess, "current", None)
    yield
    if helper := LiteLLMProcess.current:
        helper.end()


@pytest.fixture
def stand_in(fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", str(plant(tmp_path / "packages", STAND_IN)))
    return tmp_path


@pytest.fixture
def provider() -> LiteLLMProvider:
    return LiteLLMProvider(ProviderAccess("http://127.0.0.1:1", "secret-key"))


async def begin(provider: LiteLLMProvider, prompt: str) -> asyncio.Task[None]:
    """A reply that somebody listens to, of which the first words have come."""
    begun = asyncio.Event()

    async def listen() -> None:
        async for piece in provider.stream(ask(prompt)):
            if isinstance(piece, TextPiece):
                begun.set()

    listening = asyncio.create_task(listen())
    waiting = asyncio.create_task(begun.wait())
    await asyncio.wait({listening, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    return listening


async def ready() -> LiteLLMProcess:
    helper = LiteLLMProcess.shared()
    while not helper.ready:
        await asyncio.sleep(0.005)
    return helper


# --- where it is well


async def test_litellm_process_is_ready_after_warm_up(stand_in: Path, provider: LiteLLMProvider) -> None:
    assert provider.slow_to_begin
    begin_loading()
    helper = await ready()
    assert not provider.slow_to_begin
    assert (await hear(provider)).text == "begun done"
    assert LiteLLMProcess.shared() is helper
    assert "litellm" not in sys.modules or sys.modules["litellm"].__file__ != str(stand_in)


async def test_litellm_process_output_is_discarded(
    stand_in: Path, provider: LiteLLMProvider, capfd: pytest.CaptureFixture[str]
) -> None:
    assert (await hear(provider)).text == "begun done"
    await provider.close()
    assert capfd.readouterr() == ("", "")


async def test_a_huge_piece_and_a_huge_prompt_pass_whole(stand_in: Path, provider: LiteLLMProvider) -> None:
    heard = await hear(provider, ask("long 8000000", system="x" * 5_000_000))
    assert len(heard.text) == 8_000_000 + len("begun done")


async def test_half_a_letter_is_marked_as_one(stand_in: Path, provider: LiteLLMProvider) -> None:
    assert (await hear(provider, ask("half"))).text == "begun a \ufffd letterdone"


async def test_replies_that_come_at_once_are_told_apart(stand_in: Path, provider: LiteLLMProvider) -> None:
    other = LiteLLMProvider(ProviderAccess("http://127.0.0.1:2"))
    asked = [hear(provider, ask(f"long {1_000 * n}")) for n in range(1, 6)]
    asked += [hear(other, ask(f"long {1_000 * n}")) for n in range(6, 11)]
    heard = await asyncio.gather(*asked)
    assert [event.text.count("x") for event in heard] == [1_000 * n for n in range(1, 11)]


async def test_a_reply_that_nobody_wants_any_more_is_closed(
    stand_in: Path, provider: LiteLLMProvider, tmp_path: Path
) -> None:
    listening = await begin(provider, f"hang {tmp_path / 'closed'}")
    listening.cancel()
    await asyncio.wait([listening])
    await asyncio.to_thread(until, (tmp_path / "closed").exists, "the stream was closed")
    assert (await hear(provider)).text == "begun done"


async def test_cancelling_one_call_leaves_the_others(
    stand_in: Path, provider: LiteLLMProvider, tmp_path: Path
) -> None:
    cancelled = await begin(provider, f"hang {tmp_path / 'cancelled'}")
    other = await begin(provider, f"hang {tmp_path / 'other'}")
    cancelled.cancel()
    await asyncio.to_thread(until, (tmp_path / "cancelled").exists, "the first stream was closed")
    assert not (tmp_path / "other").exists()
    assert not other.done()
    other.cancel()
    await asyncio.wait([other])


async def test_litellm_process_survives_a_new_event_loop(stand_in: Path, provider: LiteLLMProvider) -> None:
    async def in_a_loop_of_its_own() -> int:
        assert (await hear(provider)).text == "begun done"
        return LiteLLMProcess.shared().pid

    first = await asyncio.to_thread(lambda: asyncio.run(in_a_loop_of_its_own()))
    assert await in_a_loop_of_its_own() == first


async def test_the_key_is_in_no_command_line_and_the_current_folder_is_no_place_for_modules(
    stand_in: Path, provider: LiteLLMProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = plant(stand_in / "repository", "raise SystemExit('planted')")
    monkeypatch.chdir(repository)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", ".", str(stand_in / "packages"), "repository"]))
    monkeypatch.setenv("SOME_KEY", "in-the-environment")
    about = (await hear(provider, ask("about"))).text
    assert str(repository) not in about
    assert "in-the-environment" in about
    arguments = Path(f"/proc/{LiteLLMProcess.shared().pid}/cmdline").read_bytes()
    assert b"crushpy.llm.litellm.helper" in arguments
    assert b"secret" not in arguments


async def test_litellm_process_has_its_own_session(stand_in: Path, provider: LiteLLMProvider) -> None:
    helper = await ready()
    assert os.getsid(helper.pid) == os.getpgid(helper.pid) == helper.pid


# --- where it breaks


async def test_litellm_process_is_replaced_after_dying_in_a_reply(
    stand_in: Path, provider: LiteLLMProvider
) -> None:
    listening = await begin(provider, "hang /dev/null")
    pid = LiteLLMProcess.shared().pid
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(CutStream, match=rf"litellm process \({pid}\) was ended by SIGKILL") as caught:
        await listening
    assert caught.value.retryable
    assert (await hear(provider)).text == "begun done"
    assert LiteLLMProcess.shared().pid != pid


async def test_litellm_process_error_contains_its_last_output(
    stand_in: Path, provider: LiteLLMProvider
) -> None:
    with pytest.raises(CutStream, match="ended with exit code 7: the last words"):
        await hear(provider, ask("die"))


async def test_litellm_process_dying_during_import_is_reported(
    fresh: None, tmp_path: Path, provider: LiteLLMProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(plant(tmp_path, "import os; os.kill(os.getpid(), 9)")))
    with pytest.raises(Unavailable, match="was ended by SIGKILL"):
        await hear(provider)


async def test_a_litellm_that_cannot_be_loaded_says_why_and_is_not_tried_again(
    fresh: None, tmp_path: Path, provider: LiteLLMProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(plant(tmp_path, "import no_such_package")))
    with pytest.raises(ModelError, match=r"could not be loaded.*no_such_package") as caught:
        await hear(provider)
    assert not caught.value.retryable
    assert "crushpy" in caught.value.hint


# --- when it ends


@pytest.mark.slow
async def test_litellm_process_ends_when_idle_and_restarts(
    stand_in: Path, provider: LiteLLMProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IDLE_TIMEOUT_S", 0.3)
    listening = await begin(provider, "block 0.4")
    helper = LiteLLMProcess.shared()
    pid = helper.pid
    await listening
    while not helper.ended:
        await asyncio.sleep(0.005)
    assert provider.slow_to_begin
    await asyncio.to_thread(until, lambda: not alive(pid), "it was ended")
    assert (await hear(provider)).text == "begun done"


APP = """
import asyncio, sys, time
from crushpy.llm.litellm.provider import LiteLLMProcess
async def main():
    print(LiteLLMProcess.shared().pid, flush=True)
    {then}
asyncio.run(main())
"""


@pytest.mark.parametrize("loads", ["", "import time; time.sleep(1_000)", "while True: pass"])
@pytest.mark.parametrize("then", ["await asyncio.sleep(1_000)", "pass"], ids=["killed", "left"])
def test_litellm_process_ends_with_the_app_during_import(
    stand_in: Path, loads: str, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if loads:
        monkeypatch.setenv("PYTHONPATH", str(plant(stand_in / "slow", loads)))
    app = subprocess.Popen([sys.executable, "-c", APP.format(then=then)], stdout=subprocess.PIPE, text=True)
    assert app.stdout is not None
    pid = int(app.stdout.readline())
    if then != "pass":
        assert alive(pid)
        app.kill()
    app.wait(60)
    app.stdout.close()
    until(lambda: not alive(pid), "litellm's process was gone too")


# --- what crosses the pipe

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ModelError)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_comes_out_as_it_went_in(kind: type[ModelError]) -> None:
    error = kind("it failed", "do this", status=418)
    for name in ("retry_after", "limit"):
        if hasattr(error, name):
            setattr(error, name, 5)
    received = decode_answer(encode_line(CallReply.from_error(3, error))).content()
    assert type(received) is kind
    assert vars(received) == vars(error)
    assert str(received) == str(error)
