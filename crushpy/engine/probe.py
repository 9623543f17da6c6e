"""Tries a model with the smallest request there is: whether its key, its name and its address are right."""

import asyncio
import time

from crushpy.core.messages import Message, Text
from crushpy.llm.errors import CutStream, TimedOut
from crushpy.llm.protocol import Done, Request
from crushpy.llm.provider_factory import select
from crushpy.settings import Settings

PATIENCE = 60.0
"""Seconds. litellm may have to be loaded first, and a local server may have to load the model."""
OUTPUT = 16
"""Tokens; some providers allow no fewer."""


async def probe_model(model: str, settings: Settings) -> str:
    """Words that say it works. Raises ModelError where it does not; costs a few tokens."""
    provider = await asyncio.to_thread(select, model, settings)
    hello = Message(id="hello", role="user", parts=(Text("Say OK."),))
    request = Request(model, "Answer with one word.", (hello,), max_output_tokens=OUTPUT)
    started = time.monotonic()
    try:
        async with asyncio.timeout(PATIENCE):
            async for piece in provider.stream(request):
                if isinstance(piece, Done):
                    return f"{model} answered after {time.monotonic() - started:.1f} s."
    except TimeoutError as error:
        raise TimedOut(
            f"{model} did not answer within {PATIENCE:g} s.", "Check the network, or try another model."
        ) from error
    finally:
        await provider.close()
    raise CutStream(f"{model} ended its answer too soon.")
