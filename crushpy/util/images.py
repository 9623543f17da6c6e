"""Pictures: tells their true type, reads them safely, and makes of each what a vendor's model takes.

Pillow is loaded when the first picture comes. Reading and scaling take their time: call them in a thread.
"""

import os
import stat
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from crushpy.core.errors import UsageError
from crushpy.core.messages import Data, Image
from crushpy.security.safe_open import NotRegular, open_regular
from crushpy.security.sanitize import one_line

if TYPE_CHECKING:
    from PIL.Image import Image as Frame

ACCEPTED = "Pictures may be PNG, JPEG, GIF or WebP."
MAX_PICTURE_FILE = 50_000_000
"""Bytes of a file that are read at all."""
MAX_PIXELS = 100_000_000
"""Decoded at once; a file that claims more is refused before anything is decoded."""
SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp")

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_FORMATS = {"image/png": "PNG", "image/jpeg": "JPEG", "image/gif": "GIF", "image/webp": "WEBP"}
_HARMLESS = frozenset(
    {
        *("jfif", "jfif_version", "jfif_unit", "jfif_density", "dpi", "progressive", "progression", "adobe"),
        *("adobe_transform", "icc_profile", "gamma", "srgb", "transparency", "interlace", "chromaticity"),
        *("aspect", "loop", "background", "timestamp", "duration"),
    }
)
"""What a file may say beside its pixels and still be sent as it is: nothing of people and places."""
_TURNED = 5
"""From this EXIF orientation on, width and height change places."""
_MAX_NAME = 60
_CHUNK = 1 << 20
_SHRINK = 0.75


class ImageLimits(Data, frozen=True):
    """What a vendor takes without scaling it down itself."""

    longest: int
    """Pixels of the longer side."""
    shortest: int = 0
    """Pixels of the shorter side; 0: no limit."""
    size: int = 3_750_000
    """Bytes; 5 MB in base64, which the strictest vendor takes."""

    def fit(self, width: int, height: int) -> tuple[int, int]:
        """`width` and `height`, scaled down where they must be."""
        scale = min(1.0, self.longest / max(width, height))
        if self.shortest:
            scale = min(scale, self.shortest / min(width, height))
        return max(1, round(width * scale)), max(1, round(height * scale))


class ScaledImage(Data, frozen=True):
    """A picture as it is sent, and how large it was."""

    image: Image
    width: int
    height: int

    @property
    def scaled(self) -> bool:
        return (self.width, self.height) != (self.image.width, self.image.height)


def image_type(raw: bytes) -> str | None:
    """The media type of an image that models can look at; None for everything else."""
    for magic, media_type in _MAGIC:
        if raw.startswith(magic):
            return media_type
    if raw[:4] == b"RIFF" and raw[8:12] == b"WEBP":
        return "image/webp"
    return None


def read_picture(path: Path, shown: str) -> bytes:
    """The bytes of a file that begins as a picture does. Pipes and devices are never opened."""
    try:
        handle = open_regular(Path(os.path.realpath(path, strict=True)))
        try:
            status = os.fstat(handle)
            raw = _read(handle)
        finally:
            os.close(handle)
    except NotRegular as error:
        what = "a folder" if stat.S_ISDIR(error.mode) else "not a regular file"
        raise UsageError(f"{shown} is {what}.", ACCEPTED) from None
    except OSError as error:
        raise UsageError(f"{shown}: {error.strerror or error}.", ACCEPTED) from error
    except ValueError as error:  # a NUL in it
        raise UsageError(f"{shown} is no name of a file.", ACCEPTED) from error
    if not raw:
        raise UsageError(f"{shown} is empty.", ACCEPTED)
    if image_type(raw) is None:
        raise UsageError(f"{shown} is not a picture.", ACCEPTED)
    if len(raw) > MAX_PICTURE_FILE:
        raise UsageError(
            f"{shown} is too large: {status.st_size:,} bytes; at most {MAX_PICTURE_FILE:,} are read.",
            "Make a smaller copy.",
        )
    return raw


def _read(handle: int) -> bytes:
    """All of it, but not much more than is taken."""
    chunks: list[bytes] = []
    size = 0
    while size <= MAX_PICTURE_FILE and (chunk := os.read(handle, _CHUNK)):
        chunks.append(chunk)
        size += len(chunk)
        if len(chunks) == 1 and image_type(chunk) is None:
            break
    return b"".join(chunks)


def scale_image(raw: bytes, name: str, limits: ImageLimits) -> ScaledImage:
    """The picture as a model gets it: upright, one frame, within `limits`, nothing but pixels.

    Bytes that need none of that stay as they are. Raises UsageError for what is no picture, or a broken one.
    """
    shown = one_line(name)
    media_type = image_type(raw)
    if media_type is None:
        raise UsageError(f"{shown} is not a picture.", ACCEPTED)
    try:
        return _scaled(raw, media_type, shown, limits)
    except UsageError:
        raise
    except Exception as error:  # a broken file makes Pillow stumble in ways of its own
        raise UsageError(
            f"{shown} is damaged or cut off: it cannot be read as {_FORMATS[media_type]}.",
            "Try to open it elsewhere, or make it anew.",
        ) from error


def _scaled(raw: bytes, media_type: str, name: str, limits: ImageLimits) -> ScaledImage:
    from PIL import Image as Pillow
    from PIL import ImageOps

    Pillow.MAX_IMAGE_PIXELS = None  # it would warn on the screen; the limit is ours, and comes first
    with Pillow.open(BytesIO(raw), formats=[_FORMATS[media_type]]) as opened:
        width, height = opened.size
        if width * height > MAX_PIXELS:
            raise UsageError(
                f"{name} is too large: {width:,}x{height:,} pixels; at most {MAX_PIXELS:,} are decoded.",
                "Make a smaller copy.",
            )
        frames = getattr(opened, "n_frames", 1)
        opened.draft(None, (limits.longest, limits.longest))  # a large JPEG need not be decoded in full
        opened.load()
        turned = opened.getexif().get(0x0112, 1)
        noted = bool(opened.getexif()) or not _HARMLESS.issuperset(opened.info)
        frame = ImageOps.exif_transpose(opened)
    if turned >= _TURNED:
        width, height = height, width
    goal = limits.fit(width, height)
    plain = frames == 1 and not noted and media_type != "image/gif"  # not every vendor takes a GIF
    if plain and goal == (width, height) and len(raw) <= limits.size:
        return ScaledImage(_image(media_type, raw, name, goal), width, height)
    frame = _plain_mode(frame)
    if frame.size != goal:
        frame = _resized(frame, goal)
    return ScaledImage(_encoded(frame, media_type, name, limits.size), width, height)


def _plain_mode(frame: "Frame") -> "Frame":
    """The pixels alone, in 8 bits: with alpha where something is seen through."""
    if frame.mode.startswith("I"):
        deep = frame.convert("I")
        frame = deep.point(lambda value: value / 256).convert("L")  # pyright: ignore[reportUnknownMemberType]
    if frame.has_transparency_data:
        frame = frame.convert("RGBA")
        if frame.getchannel("A").getextrema() == (255, 255):
            frame = frame.convert("RGB")
    elif frame.mode != "L":
        frame = frame.convert("RGB")
    frame.info.clear()
    return frame


def _encoded(frame: "Frame", media_type: str, name: str, most: int) -> Image:
    """The frame as PNG where that is its nature, else as JPEG; smaller until it is small enough."""
    ways: list[tuple[str, dict[str, int | bool]]] = [("PNG", {"optimize": False})]
    if frame.mode != "RGBA":
        jpegs = [("JPEG", {"quality": quality}) for quality in (90, 75, 60)]
        ways = [*ways, *jpegs] if media_type in ("image/png", "image/gif") else [*jpegs]
    while True:
        for form, options in ways:
            out = BytesIO()
            frame.save(out, form, **options)
            if out.tell() <= most:
                return _image(f"image/{form.lower()}", out.getvalue(), name, frame.size)
        frame = _resized(frame, (max(1, int(frame.width * _SHRINK)), max(1, int(frame.height * _SHRINK))))


def _resized(frame: "Frame", size: tuple[int, int]) -> "Frame":
    from PIL.Image import Resampling

    # Pillow's own types name numpy's, which is not there.
    return frame.resize(size, Resampling.LANCZOS, reducing_gap=3.0)  # pyright: ignore[reportUnknownMemberType]


def _image(media_type: str, raw: bytes, name: str, size: tuple[int, int]) -> Image:
    from base64 import b64encode

    short = name if len(name) <= _MAX_NAME else f"…{name[-(_MAX_NAME - 1) :]}"
    return Image(media_type, b64encode(raw).decode(), short, *size)
