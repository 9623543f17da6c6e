"""The limits of vendors for images, and how they count the tokens of one. Pure."""

from collections.abc import Callable

from crushpy.core.messages import Data, Image
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


def flat_tokens(image: Image) -> int:
    return FLAT
