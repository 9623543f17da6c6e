"""Detects the real type of an image, reads it safely, and converts it to what a vendor accepts.

Pillow is imported on first use. Reading and scaling are slow: call them in a thread.
"""

import logging
import os
import stat
import warnings
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
"""Largest file that is read, in bytes."""
MAX_PIXELS = 100_000_000
"""Largest image that is decoded; a file that declares more is refused before decoding."""
SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp")

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_FORMATS = {"image/png": "PNG", "image/jpeg": "JPEG", "image/gif": "GIF", "image/webp": "WEBP"}
_PLAIN_METADATA = frozenset(
    {
        *("jfif", "jfif_version", "jfif_unit", "jfif_density", "dpi", "progressive", "progression", "adobe"),
        *("adobe_transform", "icc_profile", "gamma", "srgb", "transparency", "interlace", "chromaticity"),
        *("aspect", "loop", "background", "timestamp", "duration"),
    }
)
"""Metadata keys that contain nothing personal: a file with only these is sent unchanged."""
_FIRST_TURNED = 5
"""EXIF orientations from this value on swap width and height."""
_MAX_NAME_CHARS = 60
_SHRINK = 0.75


class ImageLimits(Data, frozen=True):
    """The largest image a vendor accepts without scaling it down itself."""

    longest: int
    """Maximum of the longer side, in pixels."""
    shortest: int = 0
    """Maximum of the shorter side, in pixels; 0 means no limit."""
    size: int = 3_750_000
    """Maximum in bytes; 5 MB in base64, the limit of the strictest vendor."""

    def fit(self, width: int, height: int) -> tuple[int, int]:
        """Return `width` and `height`, scaled down if necessary."""
        scale = min(1.0, self.longest / max(width, height))
        if self.shortest:
            scale = min(scale, self.shortest / min(width, height))
        return max(1, round(width * scale)), max(1, round(height * scale))


class ScaledImage(Data, frozen=True):
    """An image as it is sent, and its original size."""

    image: Image
    width: int
    height: int

    @property
    def scaled(self) -> bool:
        return (self.width, self.height) != (self.image.width, self.image.height)


def image_type(raw: bytes) -> str | None:
    """Return the media type of an image that models accept, None for everything else."""
    if raw[:4] == b"RIFF" and raw[8:12] == b"WEBP":
        return "image/webp"
    return next((media_type for magic, media_type in _MAGIC if raw.startswith(magic)), None)


def read_picture(path: Path, shown: str) -> bytes:
    """Return the bytes of an image file. Pipes and devices are never opened."""
    try:
        with os.fdopen(open_regular(Path(os.path.realpath(path, strict=True))), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            raw = file.read(MAX_PICTURE_FILE + 1)
    except NotRegular as error:
        what = "a folder" if stat.S_ISDIR(error.mode) else "not a regular file"
        raise UsageError(f"{shown} is {what}.", ACCEPTED) from None
    except OSError as error:
        raise UsageError(f"{shown}: {error.strerror or error}.", ACCEPTED) from error
    except ValueError as error:  # a NUL in it
        raise UsageError(f"{shown} is not a valid file name.", ACCEPTED) from error
    if not raw:
        raise UsageError(f"{shown} is empty.", ACCEPTED)
    if image_type(raw) is None:
        raise UsageError(f"{shown} is not a picture.", ACCEPTED)
    if len(raw) > MAX_PICTURE_FILE:
        raise UsageError(
            f"{shown} is too large: {size:,} bytes; at most {MAX_PICTURE_FILE:,} are read.",
            "Make a smaller copy.",
        )
    return raw


def scale_image(raw: bytes, name: str, limits: ImageLimits) -> ScaledImage:
    """Return the image as a model gets it: upright, one frame, within `limits`, without metadata.

    An image that already fits is sent unchanged. Raises UsageError if it is not an image, or damaged.
    """
    shown = one_line(name)
    media_type = image_type(raw)
    if media_type is None:
        raise UsageError(f"{shown} is not a picture.", ACCEPTED)
    try:
        return _scale(raw, media_type, shown, limits)
    except UsageError:
        raise
    except Exception as error:  # Pillow raises many kinds of errors for damaged files
        raise UsageError(
            f"{shown} is damaged or incomplete: it cannot be read as {_FORMATS[media_type]}.",
            "Open it in another program, or create it again.",
        ) from error


def _scale(raw: bytes, media_type: str, name: str, limits: ImageLimits) -> ScaledImage:
    from PIL import Image as Pillow
    from PIL import ImageFile, ImageOps

    Pillow.MAX_IMAGE_PIXELS = None  # our own limit is checked first
    warnings.filterwarnings("ignore", module="PIL")  # they would reach the screen
    logging.getLogger("PIL").addHandler(logging.NullHandler())
    ImageFile.LOAD_TRUNCATED_IMAGES = True  # damaged metadata is ignored, damaged pixels are not
    with Pillow.open(BytesIO(raw), formats=[_FORMATS[media_type]]) as opened:
        ImageFile.LOAD_TRUNCATED_IMAGES = False
        width, height = opened.size
        if width * height > MAX_PIXELS:
            raise UsageError(
                f"{name} is too large: {width:,}x{height:,} pixels; at most {MAX_PIXELS:,} are decoded.",
                "Make a smaller copy.",
            )
        frames = getattr(opened, "n_frames", 1)
        opened.draft(None, (limits.longest, limits.longest))  # decodes a large JPEG at reduced size
        opened.load()
        orientation = opened.getexif().get(0x0112, 1)
        has_metadata = bool(opened.getexif()) or not _PLAIN_METADATA.issuperset(opened.info)
        frame = ImageOps.exif_transpose(opened)
    if orientation >= _FIRST_TURNED:
        width, height = height, width
    target = limits.fit(width, height)
    plain = frames == 1 and not has_metadata and media_type != "image/gif"  # not every vendor accepts GIF
    if plain and target == (width, height) and len(raw) <= limits.size:
        return ScaledImage(_build_image(media_type, raw, name, target), width, height)
    frame = _normalize_mode(frame)
    if frame.size != target:
        frame = _resize(frame, target)
    return ScaledImage(_encode(frame, media_type, name, limits.size), width, height)


def _normalize_mode(frame: "Frame") -> "Frame":
    """Return only the pixels, 8 bits per channel, with alpha if any pixel is transparent."""
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


def _encode(frame: "Frame", media_type: str, name: str, max_bytes: int) -> Image:
    """Encode as PNG if the source was lossless, otherwise as JPEG, shrinking until it fits."""
    encodings: list[tuple[str, dict[str, int | bool]]] = [("PNG", {"optimize": False})]
    if frame.mode != "RGBA":
        jpegs = [("JPEG", {"quality": quality}) for quality in (90, 75, 60)]
        encodings = [*encodings, *jpegs] if media_type in ("image/png", "image/gif") else [*jpegs]
    while True:
        for form, options in encodings:
            out = BytesIO()
            frame.save(out, form, **options)
            if out.tell() <= max_bytes:
                return _build_image(f"image/{form.lower()}", out.getvalue(), name, frame.size)
        frame = _resize(frame, (max(1, int(frame.width * _SHRINK)), max(1, int(frame.height * _SHRINK))))


def _resize(frame: "Frame", size: tuple[int, int]) -> "Frame":
    from PIL.Image import Resampling

    # Pillow's types refer to numpy, which is not installed.
    return frame.resize(size, Resampling.LANCZOS, reducing_gap=3.0)  # pyright: ignore[reportUnknownMemberType]


def _build_image(media_type: str, raw: bytes, name: str, size: tuple[int, int]) -> Image:
    from base64 import b64encode

    short = name if len(name) <= _MAX_NAME_CHARS else f"…{name[-(_MAX_NAME_CHARS - 1) :]}"
    return Image(media_type, b64encode(raw).decode(), short, *size)
