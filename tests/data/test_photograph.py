"""One photograph: what its pixels are once it is turned, converted and fitted."""

import contextlib
import io
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from data_files import refused
from PIL import Image, ImageFile

from macer.data import photograph
from macer.data.photograph import read_photograph, traits
from macer.system.errors import Mistake


def picture(size=(40, 24), mode="RGB", seed=0):
    """A picture that no turn or reflection leaves as it is."""
    width, height = size
    channels = {"L": (), "RGB": (3,), "RGBA": (4,), "CMYK": (4,)}[mode]
    levels = np.random.default_rng(seed).integers(0, 256, (height, width, *channels), np.uint8)
    return Image.fromarray(levels, mode if mode == "CMYK" else None)


def saved(tmp_path, image, name="a.png", **how):
    image.save(tmp_path / name, **how)
    return tmp_path / name


def turned_exif(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


# What a camera stores so that a viewer who follows EXIF sees the upright picture.
STORED = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


def channels_first(image):
    levels = np.asarray(image)
    return levels[None] if levels.ndim == 2 else levels.transpose(2, 0, 1)


# reference


@pytest.mark.parametrize(
    ("size", "target"),
    [
        *(((40, 24), (8, 8)), ((24, 40), (8, 8)), ((40, 24), (6, 12)), ((9, 5), (16, 16))),
        *(((31, 17), (10, 7)), ((30, 30), (30, 30)), ((101, 50), (7, 9))),
    ],
)
def test_a_photograph_is_resized_to_cover_the_size_and_its_middle_cropped(tmp_path, size, target):
    image, (height, width) = picture(size), target
    factor = max(width / size[0], height / size[1])
    covering = [
        max(int(side * factor + 1e-9), least)
        for side, least in zip(size, (width, height), strict=True)
    ]
    resized = np.asarray(image.resize(covering, Image.Resampling.BILINEAR))
    left, top = (covering[0] - width) // 2, (covering[1] - height) // 2
    expected = resized[top : top + height, left : left + width].transpose(2, 0, 1)
    found = read_photograph(saved(tmp_path, image), channels=3, size=target).pixels
    assert found.shape == (3, height, width)
    assert np.array_equal(found, expected)


# law


def test_the_middle_is_kept_and_both_ends_are_lost_alike(tmp_path):
    levels = np.tile(np.arange(60, dtype=np.uint8) * 4, (20, 1))
    found = read_photograph(
        saved(tmp_path, Image.fromarray(levels)), channels=1, size=(20, 20)
    ).pixels
    assert np.array_equal(found[0], levels[:, 20:40])
    found = read_photograph(
        saved(tmp_path, Image.fromarray(levels.T)), channels=1, size=(20, 20)
    ).pixels
    assert np.array_equal(found[0], levels.T[20:40])


@pytest.mark.parametrize("size", [None, (12, 12)])
@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.webp"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_turned_photograph_has_the_pixels_of_its_upright_copy(tmp_path, orientation, name, size):
    upright = picture()
    stored = upright.transpose(STORED[orientation]) if orientation > 1 else upright
    how = {"lossless": True} if name.endswith("webp") else {}
    turned = saved(tmp_path, stored, name, exif=turned_exif(orientation), **how)
    plain = saved(tmp_path, upright, f"plain-{name}", **how)
    expected = read_photograph(plain, channels=3, size=size).pixels
    assert np.array_equal(read_photograph(turned, channels=3, size=size).pixels, expected)
    assert traits(turned).size == (24, 40)
    told = read_photograph(turned, channels=3, size=size).turned
    assert told == ("turned upright" if orientation > 1 else "")


def test_a_png_may_say_behind_its_pixels_how_it_is_turned(tmp_path):
    stored = picture().transpose(Image.Transpose.ROTATE_90)
    content = saved(tmp_path, stored, exif=turned_exif(6)).read_bytes()
    begin = content.index(b"eXIf") - 4
    end = begin + 12 + int.from_bytes(content[begin : begin + 4])
    late = content[:begin] + content[end:-12] + content[begin:end] + content[-12:]
    (tmp_path / "late.png").write_bytes(late)
    found = read_photograph(tmp_path / "late.png", channels=3).pixels
    assert np.array_equal(found, channels_first(picture()))


def test_headers_are_read_without_decoding_a_pixel(tmp_path, monkeypatch):
    files = [saved(tmp_path, picture(), f"a.{kind}") for kind in ("png", "jpg", "bmp", "webp")]
    monkeypatch.setattr(ImageFile.ImageFile, "load", None)
    assert all(traits(file).size == (24, 40) for file in files)


def test_a_turned_jpeg_has_its_own_pixels_turned(tmp_path):
    stored = picture().transpose(Image.Transpose.ROTATE_90)
    lying = read_photograph(saved(tmp_path, stored, "lying.jpg"), channels=3).pixels
    turned = saved(tmp_path, stored, "turned.jpg", exif=turned_exif(6))
    assert np.array_equal(
        read_photograph(turned, channels=3).pixels, np.rot90(lying, -1, axes=(1, 2))
    )


@pytest.mark.parametrize("name", ["a.png", "a.bmp", "a.tif", "a.tiff", "a.webp"])
def test_every_format_without_loss_has_the_same_pixels(tmp_path, name):
    how = {"lossless": True} if name == "a.webp" else {}
    found = read_photograph(saved(tmp_path, picture(), name, **how), channels=3).pixels
    assert np.array_equal(found, channels_first(picture()))


def test_jpeg_is_read_as_pillow_reads_it_and_its_form_is_named(tmp_path):
    file = saved(tmp_path, picture(), "a.jpg")
    with Image.open(file) as image:
        assert np.array_equal(read_photograph(file, channels=3).pixels, channels_first(image))
    assert traits(file).form == "JPEG"
    assert traits(saved(tmp_path, picture(), "a.webp")).form == "WebP"


def test_the_form_is_that_of_the_content_whatever_the_name_says(tmp_path):
    content = io.BytesIO()
    picture().save(content, "TIFF")
    (tmp_path / "a.jpg").write_bytes(content.getvalue())
    assert traits(tmp_path / "a.jpg").form == "TIFF"


def test_what_is_transparent_is_laid_over_white(tmp_path):
    image = picture(mode="RGBA")
    levels = np.asarray(image).astype(float)
    alpha = levels[..., 3:] / 255
    expected = (levels[..., :3] * alpha + 255 * (1 - alpha)).transpose(2, 0, 1)
    found = read_photograph(saved(tmp_path, image), channels=3).pixels
    assert np.abs(found - expected).max() <= 1
    image.putalpha(255)
    assert np.array_equal(
        read_photograph(saved(tmp_path, image), channels=3).pixels,
        channels_first(image.convert("RGB")),
    )
    image.putalpha(0)
    assert read_photograph(saved(tmp_path, image), channels=3).pixels.min() == 255
    assert "transparent laid over white" in traits(tmp_path / "a.png").converted


def test_a_palettes_transparent_colour_is_white_and_the_others_stay(tmp_path):
    image = Image.new("P", (4, 4), 1)
    image.putpalette([10, 20, 30, 200, 100, 50])
    image.putpixel((0, 0), 0)
    found = read_photograph(saved(tmp_path, image, transparency=0), channels=3).pixels
    assert found[:, 0, 0].tolist() == [255, 255, 255]
    assert found[:, 1, 1].tolist() == [200, 100, 50]
    done = traits(tmp_path / "a.png").converted
    assert {"transparent laid over white", "palette made RGB"} == {*done}


def test_sixteen_bits_become_their_upper_eight(tmp_path):
    levels = np.arange(256 * 8, dtype=np.uint16).reshape(32, 64) * 32 + 31
    for name in ("a.png", "a.tif"):
        file = saved(tmp_path, Image.fromarray(levels), name)
        assert np.array_equal(read_photograph(file, channels=1).pixels[0], levels >> 8)
        assert np.array_equal(
            read_photograph(file, channels=3).pixels, np.tile(levels >> 8, (3, 1, 1))
        )
        assert traits(file).converted == ("16-bit made 8-bit",) and traits(file).grey


def test_cmyk_becomes_rgb(tmp_path):
    for name in ("a.tif", "a.jpg"):
        file = saved(tmp_path, Image.new("CMYK", (4, 4), (255, 0, 0, 0)), name)
        red, green, blue = read_photograph(file, channels=3).pixels[:, 0, 0].astype(int)
        assert red <= 2 and green >= 253 and blue >= 253
        assert traits(file).converted == ("CMYK made RGB",)


def test_grey_becomes_rgb_or_stays(tmp_path):
    file = saved(tmp_path, picture(mode="L"))
    grey = read_photograph(file, channels=1).pixels
    assert np.array_equal(grey, channels_first(picture(mode="L")))
    assert np.array_equal(read_photograph(file, channels=3).pixels, np.tile(grey, (3, 1, 1)))


def test_an_exif_that_cannot_be_read_is_told_and_the_photograph_is_taken_as_it_lies(tmp_path):
    entry = struct.pack("<2HL4s", 0x0112, 2, 4, b"up\0\0")  # a text where a number should be
    exif = b"Exif\0\0II*\0" + struct.pack("<LH", 8, 1) + entry + bytes(4)
    file = saved(tmp_path, picture(), "a.jpg", exif=exif)
    told = read_photograph(file, channels=3, size=None).turned
    assert told == "with unreadable EXIF taken as they lie"
    plain = saved(tmp_path, picture(), "b.jpg")
    assert np.array_equal(
        read_photograph(file, channels=3).pixels, read_photograph(plain, channels=3).pixels
    )


def test_of_a_camera_s_two_pictures_in_one_file_the_first_is_read(tmp_path):
    one, two = picture(), picture(seed=1)
    file = saved(tmp_path, one, "a.jpg", format="MPO", save_all=True, append_images=[two])
    assert traits(file).form == "JPEG"
    alone = read_photograph(saved(tmp_path, one, "b.jpg"), channels=3).pixels
    assert np.array_equal(read_photograph(file, channels=3).pixels, alone)


@pytest.mark.parametrize("at_once", [True, False])
def test_a_small_file_is_read_at_once_and_a_large_one_in_pieces(tmp_path, monkeypatch, at_once):
    file = saved(tmp_path, picture((200, 200)), "a.jpg")
    reads: list[int] = []
    opened = photograph.opened

    @contextlib.contextmanager
    def counted(path: Path, *, limit: int) -> Iterator[SimpleNamespace]:
        with opened(path, limit=limit) as stream:
            read = stream.read
            yield SimpleNamespace(
                read=lambda *size: reads.append(1) or read(*size),
                fileno=stream.fileno, seek=stream.seek, tell=stream.tell,
            )  # fmt: skip

    monkeypatch.setattr(photograph, "opened", counted)
    if not at_once:
        monkeypatch.setattr(photograph, "_READ_AT_ONCE", file.stat().st_size - 1)
    pixels = read_photograph(file, channels=3).pixels
    assert np.array_equal(pixels, np.asarray(Image.open(file)).transpose(2, 0, 1))
    assert (len(reads) == 1) == at_once


# refusal


@pytest.mark.parametrize("shift", [0, 1])
def test_scans_are_counted_at_even_and_at_odd_places(tmp_path, shift):
    scan = b"\xff\xda\x00\x0c\x03" + bytes(10 + shift)  # of an even or an odd length
    content = saved(tmp_path, picture((64, 64)), "a.jpg").read_bytes()
    (tmp_path / "b.jpg").write_bytes(content[:-2] + 60 * scan + content[-2:])
    with refused("b.jpg must have at most 50 scans, got 61; save it again"):
        read_photograph(tmp_path / "b.jpg", channels=3)


def test_a_photograph_too_narrow_to_be_fitted_is_refused(tmp_path):
    file = saved(tmp_path, Image.new("L", (60_000, 1)))
    with refused(f"{file} must be less narrow: to cover 64×64 it would have 3840000×64 pixels"):
        read_photograph(file, channels=1, size=(64, 64))


def test_a_truncated_file_is_refused_by_name(tmp_path):
    for name in ("a.jpg", "a.png", "a.bmp", "a.tif", "a.webp"):
        file = saved(tmp_path, picture((200, 200)), name)
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        with refused(f"{file} must be a "):
            read_photograph(file, channels=3)


def palette_png(palette=None, transparency=None):
    """A PNG of 4×4 pixels by a palette, whose chunks are all well formed."""

    def chunk(kind, data):
        size, check = len(data).to_bytes(4, "big"), zlib.crc32(kind + data).to_bytes(4, "big")
        return size + kind + data + check

    head = (4).to_bytes(4, "big") * 2 + bytes([8, 3, 0, 0, 0])
    more = [(b"PLTE", palette), (b"tRNS", transparency)]
    parts = [(b"IHDR", head), *more, (b"IDAT", zlib.compress(bytes(20))), (b"IEND", b"")]
    chunks = b"".join(chunk(kind, data) for kind, data in parts if data is not None)
    return b"\x89PNG\r\n\x1a\n" + chunks


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    "content", [palette_png(), palette_png(bytes(6), bytes(300))], ids=["missing", "short"]
)
def test_a_palette_that_is_missing_or_too_short_is_refused_by_name(tmp_path, channels, content):
    file = tmp_path / "a.png"
    file.write_bytes(content)
    with refused(f"{file} must be a whole PNG, JPEG, WebP, BMP or TIFF image: "):
        read_photograph(file, channels=channels)
    with contextlib.suppress(Mistake):
        traits(file)
