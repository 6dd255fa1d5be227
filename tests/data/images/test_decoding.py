"""Decoding: every kind of picture becomes upright RGB, and every other file is refused with its name and the reason."""

import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from saccade.core import Image as InputField
from saccade.data.images.decoding import MAX_PIXELS, decode, to_pixels
from saccade.errors import DataError, UsageError
from tests.data.images.conftest import colour, encode, header_only_png

CORNERS = np.zeros((4, 6, 3), np.uint8)
CORNERS[0, 0], CORNERS[0, -1], CORNERS[-1, 0], CORNERS[-1, -1] = (255, 0, 0), (0, 255, 0), (0, 0, 255), (9, 9, 9)
# How a camera stores an upright picture for each orientation of EXIF.
STORED = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.transpose(1, 0, 2),
    6: lambda a: np.rot90(a, 1),
    7: lambda a: a.transpose(1, 0, 2)[::-1, ::-1],
    8: lambda a: np.rot90(a, -1),
}


def exif(orientation):
    data = Image.Exif()
    data[0x0112] = orientation
    return data.tobytes()


def refused(data, name="cats/1.jpg"):
    with pytest.raises(DataError) as error:
        decode(data, name)
    assert error.value.exit_code == 3
    return str(error.value)


@pytest.mark.parametrize("format", ["PNG", "BMP", "PPM", "TIFF", "WEBP"])
def test_lossless_formats_keep_every_pixel(format):
    options = {"lossless": True} if format == "WEBP" else {}
    decoded = decode(encode(CORNERS, format, **options), "1")
    assert decoded.dtype == np.uint8
    assert np.array_equal(decoded, CORNERS)


def test_a_jpeg_keeps_its_colours():
    decoded = decode(encode(colour(200, 40, 90), "JPEG", quality=95), "1.jpg")
    assert decoded.shape == (6, 5, 3)
    assert np.abs(decoded.astype(int) - (200, 40, 90)).max() <= 4


@pytest.mark.parametrize("orientation", STORED)
@pytest.mark.parametrize("format", ["PNG", "WEBP", "TIFF"])
def test_exif_orientation_turns_a_picture_upright(orientation, format):
    options = {"lossless": True} if format == "WEBP" else {}
    data = encode(np.ascontiguousarray(STORED[orientation](CORNERS)), format, exif=exif(orientation), **options)
    assert np.array_equal(decode(data, "1"), CORNERS)


@pytest.mark.parametrize("orientation", STORED)
def test_exif_orientation_of_a_jpeg(orientation):
    large = CORNERS.repeat(16, 0).repeat(16, 1)
    stored = np.ascontiguousarray(STORED[orientation](large))
    decoded = decode(encode(stored, "JPEG", quality=100, subsampling=0, exif=exif(orientation)), "1.jpg")
    assert decoded.shape == large.shape
    assert np.abs(decoded.astype(int) - large).mean() < 2


@pytest.mark.parametrize("data", [b"", b"Exif\0\0", b"II", b"II*\0\xff\xff\xff\xff", b"MM\0*\0\0\0\x08\xff\xff"])
def test_damaged_exif_data_do_not_matter(data):
    png = encode(CORNERS, "PNG", exif=b"Exif\0\0" + data)
    assert np.array_equal(decode(png, "1.png"), CORNERS)


def test_transparent_pixels_are_shown_on_white():
    pixels = np.zeros((2, 3, 4), np.uint8)
    pixels[0] = (10, 20, 30, 255)
    pixels[1] = (10, 20, 30, 0)
    decoded = decode(encode(pixels), "1.png")
    assert (decoded[0] == (10, 20, 30)).all()
    assert (decoded[1] == 255).all()


def test_grey_with_alpha_and_half_transparent():
    pixels = np.zeros((2, 2, 2), np.uint8)
    pixels[..., 1] = 128
    decoded = decode(encode(Image.fromarray(pixels, "LA")), "1.png")
    assert np.abs(decoded.astype(int) - 127).max() <= 1


def test_palettes_with_and_without_transparency():
    image = Image.fromarray(np.array([[0, 1], [1, 0]], np.uint8), "P")
    image.putpalette([255, 0, 0, 0, 0, 255])
    assert decode(encode(image), "1.png").tolist() == [[[255, 0, 0], [0, 0, 255]], [[0, 0, 255], [255, 0, 0]]]
    shown = decode(encode(image, transparency=1), "1.png")
    assert shown.tolist() == [[[255, 0, 0], [255, 255, 255]], [[255, 255, 255], [255, 0, 0]]]
    assert decode(encode(image, "GIF"), "1.gif").tolist()[0] == [[255, 0, 0], [0, 0, 255]]


def test_a_transparent_colour_of_a_grey_picture():
    decoded = decode(encode(Image.fromarray(np.array([[7, 8]], np.uint8)), transparency=7), "1.png")
    assert decoded.tolist() == [[[255] * 3, [8] * 3]]


def test_grey_one_bit_and_sixteen_bits():
    grey = np.array([[0, 100], [200, 255]], np.uint8)
    assert np.array_equal(decode(encode(grey), "1.png"), grey[..., None].repeat(3, 2))
    assert decode(encode(Image.fromarray(grey > 150)), "1.png")[..., 0].tolist() == [[0, 0], [255, 255]]
    wide = np.array([[0, 256], [0x8000, 0xFFFF]], np.uint16)
    for format in ("PNG", "TIFF"):
        assert decode(encode(Image.fromarray(wide), format), "1")[..., 0].tolist() == [[0, 1], [128, 255]]


def test_cmyk():
    image = Image.new("CMYK", (4, 4), (0, 255, 255, 0))
    for format in ("JPEG", "TIFF"):
        red = decode(encode(image, format), "1")[0, 0].astype(int)
        assert red[0] > 200 and red[1] < 60 and red[2] < 60


def palette():
    image = Image.fromarray(np.array([[0, 1, 1], [1, 0, 1]], np.uint8), "P")
    image.putpalette([255, 0, 0, 0, 0, 255])
    return image


PIL_CASES = {
    "orientation.jpg": encode(CORNERS.repeat(8, 0).repeat(8, 1), "JPEG", exif=exif(6)),
    "orientation.png": encode(CORNERS, exif=exif(6)),
    "orientation.tiff": encode(CORNERS, "TIFF", exif=exif(6)),
    "alpha.png": encode(np.random.default_rng(0).integers(0, 256, (5, 7, 4), dtype=np.uint8)),
    "grey alpha.png": encode(Image.fromarray(np.full((3, 2, 2), 100, np.uint8), "LA")),
    "16 bits.png": encode(Image.fromarray(np.array([[0, 256], [0x8000, 0xFFFF]], np.uint16))),
    "16 bits.tiff": encode(Image.fromarray(np.array([[0, 256], [0x8000, 0xFFFF]], np.uint16)), "TIFF"),
    "palette.png": encode(palette(), transparency=1),
    "palette.gif": encode(palette(), "GIF", transparency=0),
    "cmyk.jpg": encode(Image.new("CMYK", (4, 5), (10, 255, 200, 30)), "JPEG", exif=exif(6)),
    "one bit.png": encode(Image.fromarray(CORNERS[..., 0] > 100)),
}


@pytest.mark.parametrize("name", PIL_CASES)
def test_a_pil_image_is_read_as_its_file(name, tmp_path):
    path, field = tmp_path / name, InputField("image")
    path.write_bytes(PIL_CASES[name])
    with Image.open(path) as image:
        given = to_pixels(field.read(image), "image")
    assert np.array_equal(given, to_pixels(field.read(path), "image"))


def test_pil_images_of_other_modes_and_damaged_ones(tmp_path):
    field = InputField("image")
    for mode, value, expected in (("RGBa", (0, 0, 0, 0), 255), ("YCbCr", (255, 128, 128), 255), ("HSV", (0, 0, 9), 9)):
        assert (to_pixels(field.read(Image.new(mode, (3, 2), value)), "image") == expected).all()
    with pytest.raises(UsageError, match="image: pixels of floating-point numbers, expected grey, RGB or CMYK"):
        to_pixels(field.read(Image.new("F", (2, 2))), "image")
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    (tmp_path / "half.jpg").write_bytes(encode(pixels, "JPEG")[:900])
    with (
        Image.open(tmp_path / "half.jpg") as image,
        pytest.raises(UsageError, match=r"image: the PIL image cannot be read \(.*\); open or create it again"),
    ):
        field.read(image)


def test_floating_point_pixels_are_refused():
    message = refused(encode(Image.fromarray(np.ones((2, 2), np.float32)), "TIFF"), "1.tiff")
    assert message.startswith("1.tiff: pixels of floating-point numbers, expected grey, RGB or CMYK of 8 or 16 bits")


@pytest.mark.parametrize("format", ["GIF", "PNG", "WEBP", "TIFF"])
def test_animated_pictures_are_refused(format):
    frames = [Image.fromarray(colour(value)) for value in (0, 100, 200)]
    data = encode(frames[0], format, save_all=True, append_images=frames[1:])
    name = {"WEBP": "WebP"}.get(format, format)
    assert refused(data) == (
        f"cats/1.jpg: 3 frames in a {name} file, expected a picture of one frame; "
        "save one of the frames as a file of its own"
    )


def test_the_first_picture_of_a_phone_with_several_is_read():
    frames = [Image.fromarray(colour(value, size=(16, 16))) for value in (200, 10)]
    decoded = decode(encode(frames[0], "MPO", save_all=True, append_images=frames[1:]), "1.jpg")
    assert np.abs(decoded.astype(int) - (200, 0, 0)).max() <= 4


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "BMP", "TIFF", "PPM"])
def test_truncated_files_are_refused(format):
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    whole = encode(pixels, format)
    for size in (len(whole) // 4, len(whole) // 2, len(whole) - 200):
        message = refused(whole[:size])
        name = {"WEBP": "WebP"}.get(format, format)
        assert message.startswith(f"cats/1.jpg: a damaged {name} picture (")
        assert message.endswith("; download or save it again, or remove it")


def test_changed_bytes_raise_nothing_else():
    random = np.random.default_rng(1)
    pixels = random.integers(0, 256, (40, 30, 3), dtype=np.uint8)
    for format in ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "PPM"):
        whole = encode(pixels, format)
        for _ in range(60):
            data = bytearray(whole)
            for place in random.integers(0, min(len(data), 400), 4):
                data[place] = random.integers(0, 256)
            try:
                assert decode(bytes(data), "1").shape[2] == 3
            except DataError as error:
                assert str(error).startswith("1: ")


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "an empty file"),
        (b"a text with the name of a picture\n", "looks like text"),
        ("ein Text mit Umlauten: äöü".encode(), "looks like text"),
        (b"<!DOCTYPE html><html><body>404</body></html>", "looks like a web page or XML"),
        (b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>', "looks like an SVG drawing"),
        (b"%PDF-1.7\n%\xe2\xe3", "looks like a PDF document"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "looks like a HEIC picture"),
        (b"\0\0\0\x18ftypavif\0\0\0\0", "looks like an AVIF picture"),
        (b"\0\0\0\x0cjP  \r\n\x87\n", "looks like a JPEG 2000 picture"),
        (b"8BPS\0\1" + bytes(40), "looks like a Photoshop picture"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "looks like a Git LFS pointer, not the file itself"),
        (b"PK\x03\x04" + bytes(30), "looks like a zip archive"),
        (bytes(100), "zero bytes"),
        (b"\x81\x92\xa3\xb4" * 8, "an unknown kind of file"),
        (b"BM and other brands", "looks like text"),
    ],
)
def test_other_files_are_named(data, what):
    message = refused(data)
    assert message.startswith(f"cats/1.jpg: {what}, expected a picture (JPEG, PNG, GIF, WebP, BMP, TIFF, PPM); ")


def test_the_content_decides_not_the_suffix():
    assert np.array_equal(decode(encode(CORNERS, "PNG"), "1.jpg"), CORNERS)


def test_a_picture_without_pixels_is_refused():
    assert refused(header_only_png(0, 5)).startswith("cats/1.jpg: ")
    assert refused(b"P6\n0 5\n255\n").startswith("cats/1.jpg: ")


def test_too_many_pixels_are_refused_by_the_header():
    message = refused(header_only_png(30_000, 30_000))
    assert message == (
        "cats/1.jpg: 30,000 x 30,000 pixels (900 million), expected at most 64 million; "
        "make the picture smaller, for example: magick INPUT -resize 2000x2000 OUTPUT"
    )
    side = int(MAX_PIXELS**0.5)
    assert "a damaged PNG picture" in refused(header_only_png(side, side))


BOMBS = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
from saccade.data.images.decoding import decode
from saccade.errors import DataError
for path in sys.argv[1:]:
    try:
        decode(open(path, "rb").read(), path)
    except DataError as error:
        print(error)
if sys.platform == "linux":  # getrusage would count the process that started this one
    print(int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) // 1024)
else:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def test_bombs_need_little_memory(tmp_path):
    (tmp_path / "header.png").write_bytes(header_only_png(30_000, 30_000))
    rows = zlib.compress(bytes(30_000 * 3_751), 1)  # of one bit for each pixel

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 30_000, 30_000, 1, 0, 0, 0, 0)
    whole = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    (tmp_path / "whole.png").write_bytes(whole)
    bmp = b"BM" + struct.pack("<IHHI", 54, 0, 0, 54) + struct.pack("<IiiHHIIiiII", 40, 30_000, 30_000, 1, 24, *[0] * 6)
    (tmp_path / "header.bmp").write_bytes(bmp)
    names = ["header.png", "whole.png", "header.bmp"]
    command = [sys.executable, "-c", BOMBS, *names]
    environment = {"PYTHONPATH": str(Path(__file__).parents[3]), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    *messages, peak = done.stdout.splitlines()
    assert [message.split(" (")[0] for message in messages] == [f"{name}: 30,000 x 30,000 pixels" for name in names]
    assert int(peak) < 1000, "MB"


def test_a_missing_pillow_is_named_with_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.PngImagePlugin", None)
    with pytest.raises(
        UsageError, match=r"pictures need Pillow, which is not installed: pip install 'saccade\[images\]'"
    ):
        decode(encode(CORNERS), "1.png")


def test_inputs_of_a_model_become_pixels():
    assert np.array_equal(to_pixels(encode(CORNERS), "image"), CORNERS)
    assert np.array_equal(to_pixels(torch.from_numpy(CORNERS).permute(2, 0, 1), "image"), CORNERS)
    grey = torch.full((1, 2, 3), 9, dtype=torch.uint8)
    assert to_pixels(grey, "image").tolist() == [[[9, 9, 9]] * 3] * 2
    clear = torch.zeros((4, 1, 2), dtype=torch.uint8)
    clear[3, 0, 0] = 255
    assert to_pixels(clear, "image").tolist() == [[[0, 0, 0], [255, 255, 255]]]
    assert to_pixels(torch.tensor([[[10]], [[255]]], dtype=torch.uint8), "image").tolist() == [[[10, 10, 10]]]


def test_bad_inputs_of_a_model_are_usage_errors():
    with pytest.raises(UsageError, match="image: looks like text, expected a picture"):
        to_pixels(b"text", "image")
    with pytest.raises(UsageError, match=r"image must be a uint8 array of 1 to 4 channels .* its shape is \(3, 0, 2\)"):
        to_pixels(torch.zeros((3, 0, 2), dtype=torch.uint8), "image")
    with pytest.raises(UsageError, match=r"its shape is \(5, 2, 2\)"):
        to_pixels(torch.zeros((5, 2, 2), dtype=torch.uint8), "image")
