"""Pictures on their way to a model: recognised, turned, stripped, scaled, and refused where they are none."""

import os
import warnings
from base64 import b64decode
from pathlib import Path

import pytest
from support.pictures import RED, animated, looked_at, noise, photo, picture, with_words

from crushpy.core.errors import UsageError
from crushpy.llm.tokens import ANTHROPIC, GEMINI, OPENAI, ImageRules, image_rules
from crushpy.util.images import ImageLimits, image_type, read_picture, scale_image

ROOMY = ImageLimits(longest=2_000)


@pytest.mark.parametrize(
    ("form", "media_type"), [("PNG", "image/png"), ("JPEG", "image/jpeg"), ("WEBP", "image/webp")]
)
def test_a_picture_that_fits_is_sent_as_it_is(form: str, media_type: str) -> None:
    raw = picture(form=form)
    found = scale_image(raw, "a", ROOMY)
    assert image_type(raw) == found.image.media_type == media_type
    assert b64decode(found.image.data) == raw
    assert (found.image.width, found.image.height, found.scaled) == (64, 48, False)
    assert found.image.info.size == len(raw)


@pytest.mark.parametrize("size", [(1, 1), (1, 5_000), (5_000, 1)])
def test_the_smallest_and_the_thinnest_keep_at_least_a_pixel(size: tuple[int, int]) -> None:
    image = scale_image(picture(*size), "a", ROOMY).image
    assert looked_at(image.data).size == (min(size[0], 2_000), min(size[1], 2_000))


@pytest.mark.parametrize(
    ("rules", "size", "scaled", "tokens"),
    [
        (ANTHROPIC, (4_000, 3_000), (1_568, 1_176), 2_459),
        (ANTHROPIC, (1_000, 1_000), (1_000, 1_000), 1_334),
        (OPENAI, (4_000, 3_000), (1_024, 768), 85 + 170 * 4),
        (OPENAI, (1_000, 4_000), (512, 2_048), 85 + 170 * 4),
        (OPENAI, (500, 500), (500, 500), 85 + 170),
        (GEMINI, (4_000, 3_000), (3_072, 2_304), 258 * 12),
        (GEMINI, (384, 384), (384, 384), 258),
        (GEMINI, (769, 500), (769, 500), 258 * 2),
    ],
)
def test_each_vendor_gets_the_size_it_takes_and_counts_it_its_way(
    rules: ImageRules, size: tuple[int, int], scaled: tuple[int, int], tokens: int
) -> None:
    found = scale_image(picture(*size), "a", rules.limits)
    assert (found.image.width, found.image.height) == scaled == looked_at(found.image.data).size
    assert (found.width, found.height) == size
    assert rules.tokens(found.image) == tokens


@pytest.mark.parametrize(
    ("model", "protocol", "rules"),
    [
        ("anthropic/claude-sonnet-4-5", "anthropic", ANTHROPIC),
        ("mine/whatever", "anthropic", ANTHROPIC),
        ("bedrock/anthropic.claude-v4", "litellm", ANTHROPIC),
        ("gemini/gemini-pro-latest", "gemini", GEMINI),
        ("vertex_ai/gemini-3", "litellm", GEMINI),
        ("openai/gpt-5", "responses", OPENAI),
        ("ollama/llava", "litellm", OPENAI),
    ],
)
def test_the_protocol_or_the_name_tells_whose_rules_hold(
    model: str, protocol: str, rules: ImageRules
) -> None:
    assert image_rules(model, protocol) is rules


def test_a_photo_is_turned_upright_and_does_not_tell_where_it_was_taken() -> None:
    raw = photo()
    assert b"SecretCamera" in raw
    found = scale_image(raw, "a", ROOMY)
    seen = looked_at(found.image.data)
    assert seen.size == (48, 64) == (found.image.width, found.image.height)
    assert not seen.getexif() and b"SecretCamera" not in b64decode(found.image.data)


def test_words_in_a_file_are_not_sent() -> None:
    assert b"Nobody Special" not in b64decode(scale_image(with_words(), "a", ROOMY).image.data)


@pytest.mark.parametrize("form", ["GIF", "WEBP", "PNG"])
def test_animation_is_sent_as_its_first_frame(form: str) -> None:
    image = scale_image(animated(form), "a", ROOMY).image
    seen = looked_at(image.data)
    assert getattr(seen, "n_frames", 1) == 1 and image.media_type in ("image/png", "image/jpeg")
    assert max(abs(a - b) for a, b in zip(seen.convert("RGB").getpixel((5, 5)), RED, strict=True)) < 4


def test_transparency_is_kept() -> None:
    image = scale_image(picture(4_000, 100, mode="RGBA"), "a", ROOMY).image
    seen = looked_at(image.data)
    assert image.media_type == "image/png" and seen.mode == "RGBA" and seen.getpixel((5, 5))[3] == 128


@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_a_picture_of_too_many_bytes_is_made_smaller_until_it_fits(mode: str) -> None:
    limits = ImageLimits(longest=2_000, size=60_000)
    image = scale_image(noise(400, 300, mode), "a", limits).image
    assert image.info.size <= 60_000
    assert looked_at(image.data).size == (image.width, image.height)


@pytest.mark.parametrize("mode", ["1", "L", "P", "I;16"])
def test_every_depth_of_colour_can_be_scaled(mode: str) -> None:
    assert looked_at(scale_image(picture(3_000, 10, mode=mode), "a", ROOMY).image.data).size == (2_000, 7)


def test_four_colours_of_ink_can_be_scaled() -> None:
    raw = picture(3_000, 10, "JPEG", mode="CMYK")
    assert looked_at(scale_image(raw, "a", ROOMY).image.data).mode == "RGB"


@pytest.mark.slow
def test_a_bomb_is_refused_before_it_is_decoded() -> None:
    raw = picture(20_000, 20_000, mode="1")
    with pytest.raises(UsageError, match=r"bomb\.png is too large: 20,000x20,000 pixels"):
        scale_image(raw, "bomb.png", ROOMY)


def test_a_damaged_chunk_of_metadata_is_ignored() -> None:
    raw = picture(30, 20)
    chunk = b"\x00\x00\x00\x04tEXta\x00bc" + b"\x00\x00\x00\x00"  # the last four: not its checksum
    assert scale_image(raw[:33] + chunk + raw[33:], "a.png", ROOMY).width == 30


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "GIF"])
def test_incomplete_image_is_refused_by_name(form: str) -> None:
    raw = picture(300, 200, form)
    with pytest.raises(UsageError, match=rf"half\.png is damaged or incomplete.*{form}"):
        scale_image(raw[: len(raw) // 2], "half.png", ROOMY)


def test_a_name_cannot_hide_anything() -> None:
    assert scale_image(picture(), "a\x1b]0;x\x07\nb.png", ROOMY).image.name == "a b.png"


# --- files -------------------------------------------------------------------------------------------------


def test_a_link_to_a_picture_is_the_picture(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(picture())
    (tmp_path / "link").symlink_to("real")
    assert read_picture(tmp_path / "link", "link") == picture()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "No such file"),
        (lambda path: path.mkdir(), "is a folder"),
        (os.mkfifo, "not a regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "not a regular file"),
        (lambda path: path.touch(), "is empty"),
        (lambda path: path.write_text("just words"), "is not a picture"),
    ],
    ids=["missing", "folder", "pipe", "device", "empty", "text"],
)
def test_unsupported_image_names_the_accepted_types(tmp_path: Path, make, words: str) -> None:  # pyright: ignore
    make(tmp_path / "a.png")
    with pytest.raises(UsageError, match=words) as refused:
        read_picture(tmp_path / "a.png", "a.png")
    assert "a.png" in refused.value.message and "PNG, JPEG, GIF or WebP" in refused.value.hint


def test_a_file_too_large_to_hold_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "a.png").open("wb") as file:
        file.write(picture())
        file.truncate(60_000_000)
    with pytest.raises(UsageError, match="60,000,000 bytes"):
        read_picture(tmp_path / "a.png", "a.png")


BROKEN_EXIF = [
    b"Exif\x00\x00",
    b"Exif\x00\x00II*\x00\xff\xff\xff\xff",
    b"Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x05" + b"\xff" * 30,
    b"Exif\x00\x00II*\x00\x08\x00\x00\x00\x01\x00\x12\x01\x03\x00\x01\x00\x00\x00",
    b"Exif\x00\x00II*\x00\x08\x00\x00\x00\x01\x00\x12\x01\x02\x00\xff\x00\x00\x00\x10\x00\x00\x00\x00\x00",
    b"Exif\x00\x00garbage that is no directory",
]


@pytest.mark.parametrize("exif", BROKEN_EXIF)
def test_broken_metadata_prints_nothing(exif: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    raw = picture(64, 48, "JPEG", exif=exif)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        found = scale_image(raw, "a", ROOMY)
    assert shown == []
    assert (found.image.width, found.image.height) == (64, 48)
    assert b"Exif" not in b64decode(found.image.data)
    assert capfd.readouterr() == ("", "")
