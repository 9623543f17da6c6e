"""A package that calls itself litellm, loads at once and answers as its prompt asks."""

from pathlib import Path

STAND_IN = """
import asyncio, json, os, sys, time
print("noise on stdout")
print("noise on stderr", file=sys.stderr, flush=True)

def get_supported_openai_params(model):
    return []

class Chunk:
    def __init__(self, text, finish=None):
        self.text, self.finish = text, finish
    def model_dump(self, **_):
        return {"choices": [{"delta": {"content": self.text}, "finish_reason": self.finish}]}

class Stream:
    received_finish_reason = "stop"
    chunks = ()
    def __init__(self, chunks):
        self.rest = chunks
    def __aiter__(self):
        return self
    async def __anext__(self):
        try:
            return await anext(self.rest)
        except StopAsyncIteration:
            raise
    async def aclose(self):
        await self.rest.aclose()

async def chunks(messages):
    prompt = messages[-1]["content"]
    print("more noise", flush=True)
    yield Chunk("begun ")
    verb, _, rest = prompt.splitlines()[-1].partition(" ")  # prompts that got no reply stand before it
    if verb == "hang":
        try:
            await asyncio.sleep(1_000)
        finally:
            open(rest, "w").write("closed")
    elif verb == "die":
        print("the last words", file=sys.stderr, flush=True)
        os._exit(7)
    elif verb == "block":
        time.sleep(float(rest))
    elif verb == "hear":
        yield Chunk(json.dumps([(message["role"], message["content"]) for message in messages]))
    elif verb == "long":
        yield Chunk("x" * int(rest))
    elif verb == "half":
        yield Chunk("a \\ud83d letter")
    elif verb == "about":
        yield Chunk(json.dumps({"path": sys.path, "argv": sys.orig_argv, "key": os.environ.get("SOME_KEY")}))
    yield Chunk("done", "stop")

async def acompletion(messages, **_):
    return Stream(chunks(messages))
"""


def plant(folder: Path, source: str) -> Path:
    """A package that calls itself litellm."""
    package = folder / "litellm"
    core = package / "litellm_core_utils"
    core.mkdir(parents=True)
    (package / "__init__.py").write_text(source)
    (core / "__init__.py").touch()
    (core / "default_encoding.py").touch()
    return folder
