"""Counts tokens with tiktoken and the vocabularies that litellm ships, without downloads.

Loading a vocabulary takes half a second, so it is done in a thread. Until then, or if the vocabulary is
missing, a token counts as four bytes.
"""

import os
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache

import msgspec

from crushpy.core.messages import Data, Image, Message, Part, Seed, Thinking, ToolCall
from crushpy.llm.catalog import litellm_folder
from crushpy.util.images import ImageLimits

FLAT = 1_500
"""Tokens of an image of unknown size: about what providers charge for a screenshot."""


class ImageRules(Data, frozen=True):
    """The limits and the token count of one family of models."""

    limits: ImageLimits
    count: Callable[[int, int], int]
    """Tokens of an image of this width and height."""

    def tokens(self, image: Image) -> int:
        return self.count(image.width, image.height) if image.width and image.height else FLAT


def _openai(width: int, height: int) -> int:
    width, height = OPENAI.limits.fit(width, height)
    return 85 + 170 * _up(width, 512) * _up(height, 512)


def _gemini(width: int, height: int) -> int:
    small = width <= 384 and height <= 384
    return 258 * (1 if small else _up(width, 768) * _up(height, 768))


def _up(number: int, step: int) -> int:
    return -(-number // step)


ANTHROPIC = ImageRules(ImageLimits(longest=1_568), lambda width, height: _up(width * height, 750))
OPENAI = ImageRules(ImageLimits(longest=2_048, shortest=768), _openai)
GEMINI = ImageRules(ImageLimits(longest=3_072), _gemini)


def image_rules(model: str, protocol: str) -> ImageRules:
    """The rules of the vendor of `model`, by protocol, then by name; OpenAI's for all others."""
    name = model.lower()
    if protocol == "anthropic" or "claude" in name:
        return ANTHROPIC
    if protocol == "gemini" or "gemini" in name:
        return GEMINI
    return OPENAI


O200K = "o200k_base"
CL100K = "cl100k_base"

SHIPPED_FILES = {
    O200K: (
        "fb374d419588a4632f3f557e76b4b70aebbca790",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ),
    CL100K: (
        "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    ),
}
"""Name and SHA-256 of each file in litellm's folder. tiktoken would download a damaged one."""

MESSAGE_TOKENS = 4
"""Overhead of a message: role and separators."""
BYTES_PER_TOKEN = 4

_SLICE = 50_000
"""Characters counted at a time: tiktoken's regex overflows its stack on very long runs of blanks."""

_OLDER = re.compile(r"(?:^|/)(?:ft:)?gpt-(?:3\.5|35|4(?![.o\d]))")

Encode = Callable[[str], list[int]]


def vocabulary_for(model: str) -> str:
    """The best vocabulary for `model`; those of other makers are not public, and o200k is close."""
    return CL100K if _OLDER.search(model) else O200K


class Counter:
    """Counts tokens for one model; exact once `start` has loaded the vocabulary in the background."""

    def __init__(self, model: str = "") -> None:
        self._vocabulary = _vocabulary(vocabulary_for(model))

    def start(self) -> None:
        """Start loading the vocabulary in a thread, once. Returns immediately."""
        self._vocabulary.begin()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until loading ends; True if counts are exact from now on."""
        self._vocabulary.begin()
        self._vocabulary.join(timeout)
        return self.exact

    @property
    def exact(self) -> bool:
        return self._vocabulary.encode is not None

    def count(self, text: str) -> tuple[int, bool]:
        """The size of `text` in tokens, and whether that is exact (False: bytes/4)."""
        encode = self._vocabulary.encode
        if encode is None:
            return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN), False
        return sum(len(encode(text[at : at + _SLICE])) for at in range(0, len(text), _SLICE)), True

    def count_message(self, message: Message, count_image: Callable[[Image], int]) -> tuple[int, bool]:
        """The size of a message as it is sent; `count_image` counts its images."""
        exact = self.exact
        texts = sum(self.count(sent_text(part))[0] for part in message.parts)
        return MESSAGE_TOKENS + sum(map(count_image, message.images)) + texts, exact


def sent_text(part: Part) -> str:
    if isinstance(part, Image):
        return ""
    if isinstance(part, Seed):
        return f"{part.notes}\n{part.rules}\n{part.pins}\n{part.evidence}\n{part.quotes}"
    if isinstance(part, Thinking):
        opaque = msgspec.json.encode(part.opaque).decode() if part.opaque else ""
        return opaque or part.text
    if isinstance(part, ToolCall):
        return f"{part.name} {part.bad_json or msgspec.json.encode(part.args).decode()}"
    return part.text


# --- vocabularies, one of each in a process --------------------------------------------------------------


class _Vocabulary(threading.Thread):
    """A vocabulary that is loaded once, in a thread, when first asked for."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.encode: Encode | None = None
        """None until it is loaded, or if that fails."""

    def begin(self) -> None:
        with _starting:
            if self.ident is None:
                self.start()

    def run(self) -> None:
        with suppress(Exception):  # a missing or broken vocabulary costs precision, never the conversation
            self.encode = _load(self.name)


_vocabulary = cache(_Vocabulary)
"""Made when it is needed: Python 3.13 starts no thread that was made before a fork."""
_starting = threading.Lock()


def _load(name: str) -> Encode:
    """Load a vocabulary from litellm's folder. Raises FileNotFoundError instead of downloading it."""
    import hashlib

    import tiktoken

    package = litellm_folder()
    folder = package and package / "litellm_core_utils" / "tokenizers"
    file, sha256 = SHIPPED_FILES[name]
    if folder is None or hashlib.sha256((folder / file).read_bytes()).hexdigest() != sha256:
        raise FileNotFoundError(f"litellm does not ship the vocabulary {name}")
    before = os.environ.get("TIKTOKEN_CACHE_DIR")
    os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)
    try:
        return tiktoken.get_encoding(name).encode_ordinary
    finally:  # commands that crushpy runs must not inherit it
        del os.environ["TIKTOKEN_CACHE_DIR"]
        if before is not None:
            os.environ["TIKTOKEN_CACHE_DIR"] = before
