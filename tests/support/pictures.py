"""Pictures for tests: made in memory, of any size and form, and read again."""

from base64 import b64decode
from io import BytesIO
from typing import Any

from PIL import Image as Pillow
from PIL.PngImagePlugin import PngInfo

RED = (200, 30, 30)


def picture(
    width: int = 64, height: int = 48, form: str = "PNG", *, mode: str = "RGB", **options: object
) -> bytes:
    """A plain picture: red, or half seen through where it has alpha."""
    colour: Any = {"RGB": RED, "RGBA": (*RED, 128)}.get(mode, 1)
    out = BytesIO()
    Pillow.new(mode, (width, height), colour).save(out, form, **options)
    return out.getvalue()


def animated(form: str, width: int = 64, height: int = 48) -> bytes:
    """Red first, then blue and green."""
    others = [Pillow.new("RGB", (width, height), colour) for colour in ("blue", "green")]
    out = BytesIO()
    first = Pillow.new("RGB", (width, height), RED)
    first.save(out, form, save_all=True, append_images=others, duration=100, loop=0)
    return out.getvalue()


def photo(width: int = 64, height: int = 48) -> bytes:
    """A JPEG that lies on its side and tells where it was taken."""
    noted = Pillow.Exif()
    noted[0x0112] = 6
    noted[0x8825] = {1: "N", 2: (48.0, 51.0, 24.0)}
    noted[0x010F] = "SecretCamera"
    return picture(width, height, "JPEG", exif=noted)


def with_words() -> bytes:
    """A PNG with a text in it that nobody sees."""
    words = PngInfo()
    words.add_text("Author", "Nobody Special")
    return picture(pnginfo=words)


def noise(width: int, height: int, mode: str = "RGB") -> bytes:
    """A PNG that does not compress."""
    import random

    raw = random.Random(7).randbytes(width * height * len(mode))
    out = BytesIO()
    Pillow.frombytes(mode, (width, height), raw).save(out, "PNG", compress_level=1)
    return out.getvalue()


def looked_at(data: str) -> Any:
    """What base64 holds, as Pillow reads it."""
    seen = Pillow.open(BytesIO(b64decode(data)))
    seen.load()
    return seen
