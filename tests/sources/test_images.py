"""Images as texts of pixels: what each pixel becomes, where images are found, what can't be read, and the way back."""

import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from components import params
from components.core.errors import SesameError
from components.core.words import characters_apart
from components.text.sources import images, open_rows

MNIST = Path(__file__).parents[3] / "shared/data/images/mnist_10k_2k_png.zip"  # beside the checkout


def source(path: Path | str, **changes) -> params.ImagesSource:
    return params.ImagesSource.model_validate({"kind": "images", "source": {"kind": "files", "paths": [str(path)]}} | changes)


def saved(values: list, path: Path, mode: str | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(np.array(values, np.uint8))
    (image.convert(mode) if mode else image).save(path)
    return path


def pixels(path: Path, **changes) -> list[int]:
    [(_, row)] = open_rows(source(path, **changes))
    return [ord(character) - images.FIRST for character in row["pixels"]]


def test_a_pixel_is_the_level_of_the_mean_of_what_becomes_it(tmp_path):
    path = saved([[0, 0, 255, 255], [0, 64, 255, 255], [31, 31, 100, 100], [31, 31, 100, 100]], tmp_path / "seven/a.png")
    assert pixels(path, side=2, levels=8) == [0, 7, 0, 3]  # means of 16, 255, 31 and 100; a level has 32 values
    assert pixels(path, side=2, levels=16) == [1, 15, 1, 6]
    assert [row["folder"] for _, row in open_rows(source(path))] == ["seven"]


def test_colours_are_numbered_by_their_three_levels(tmp_path):
    path = saved([[[255, 0, 0], [0, 255, 0]], [[0, 0, 255], [255, 255, 255]]], tmp_path / "a.png")
    assert pixels(path, side=2, levels=4, colours="rgb") == [48, 12, 3, 63]
    grey = pixels(saved([[9, 200], [9, 200]], tmp_path / "b.png", mode="RGBA"), side=2, levels=4, colours="rgb")
    assert grey == [0, 63, 0, 63], "an opaque image is what it is without its alpha"


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_what_is_transparent_is_white(tmp_path, mode):
    """A black drawing on a transparent ground was black everywhere: its picture is in the alpha channel alone."""
    image = Image.new("RGBA", (4, 4), (0, 0, 0, 0))
    image.paste((0, 0, 0, 255), (0, 0, 2, 4))
    image.convert(mode).save(tmp_path / "a.png")
    assert pixels(tmp_path / "a.png", side=2, levels=4) == [0, 3, 0, 3]


def test_a_photo_is_read_as_it_is_shown(tmp_path):
    """Tag 6: the first stored row is the right side of what is shown."""
    image, tags = Image.fromarray(np.array([[255, 255], [0, 0]], np.uint8)), Image.Exif()
    tags[0x0112] = 6
    image.save(tmp_path / "a.png", exif=tags)
    assert pixels(tmp_path / "a.png", side=2, levels=4) == [0, 3, 0, 3]


def test_each_pixel_is_a_word(tmp_path):
    [(_, row)] = open_rows(source(saved([[0, 255], [255, 0]], tmp_path / "a.png"), side=2))
    assert len(characters_apart(row["pixels"]).split()) == 4


def test_a_patch_is_a_word(tmp_path):
    path = saved([[0, 64, 0, 0], [128, 192, 0, 0], [64, 64, 255, 255], [64, 64, 255, 0]], tmp_path / "a.png")
    [(_, row)] = open_rows(source(path, side=4, levels=4, patch=2))
    words = [[ord(character) - images.FIRST_OF_WORDS for character in word] for word in characters_apart(row["pixels"]).split()]
    assert words == [[0, 1, 2, 3], [0, 0, 0, 0], [1, 1, 1, 1], [3, 3, 3, 0]]
    with pytest.raises(ValidationError, match="patch 3 does not divide side 4; take another of the two"):
        source(path, side=4, patch=3)


@pytest.mark.parametrize(("colours", "patch"), [("grey", None), ("rgb", None), ("grey", 3), ("rgb", 2)])
def test_a_text_is_an_image_again(tmp_path, colours, patch):
    values = np.random.default_rng(0).integers(0, 256, (6, 6, 3)).tolist()
    own = source(saved(values, tmp_path / "a.png"), side=6, levels=16, colours=colours, patch=patch)
    [(_, row)] = open_rows(own)
    shown = images.picture(row["pixels"], own)
    assert shown.shape == ((6, 6) if colours == "grey" else (6, 6, 3)) and shown.dtype == np.uint8
    wanted = np.asarray(Image.open(tmp_path / "a.png").convert("L" if colours == "grey" else "RGB"), dtype=int)
    assert np.abs(shown - wanted).max() <= 8, "half of a level"
    if patch:  # the square is where it was
        begun = images.picture(row["pixels"][: patch**2], own)
        assert (begun[:patch, :patch] == shown[:patch, :patch]).all() and (begun[patch:] == 8).all()
        return
    begun = images.picture(f"x {row['pixels'][:6]}", own)
    assert (begun[0] == shown[0]).all() and (begun[1:] == 8).all(), "what is no pixel is left out, the rest has the darkest level"


def test_images_of_an_archive(tmp_path):
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for name in ("train/1/a.png", "train/2/b.png", "test/1/c.png"):
            buffer = BytesIO()
            Image.fromarray(np.zeros((4, 4), np.uint8)).save(buffer, "PNG")
            archive.writestr(name, buffer.getvalue())
    rows = list(open_rows(source(tmp_path / "all.zip", members=["train/*/*.png"])))
    assert [row["folder"] for _, row in rows] == ["1", "2"] and rows[0][0].endswith("all.zip: train/1/a.png")
    with zipfile.ZipFile(tmp_path / "all: new.zip", "w") as archive:  # the names of breeds were the labels of cats and dogs alike
        archive.writestr("cat: persian/a.png", buffer.getvalue())
        archive.writestr("deep/dog: persian/b.png", buffer.getvalue())
    named = list(open_rows(source(tmp_path / "all: new.zip", members=["*.png", "*/*.png", "*/*/*.png"])))
    assert sorted(row["folder"] for _, row in named) == ["cat: persian", "dog: persian"]
    with pytest.raises(SesameError, match=r"all\.zip: nothing in it matches 'train/\*\.jpg'"):
        list(open_rows(source(tmp_path / "all.zip", members=["train/*.jpg"])))


def test_pages_that_are_not_read_are_counted(tmp_path, capsys):
    first, second = Image.new("L", (4, 4), 0), Image.new("L", (4, 4), 255)
    first.save(tmp_path / "a.tif", save_all=True, append_images=[second, second])
    assert pixels(tmp_path / "a.tif", side=2) == [0] * 4
    assert capsys.readouterr().out == f"images of {tmp_path}/a.tif: 1 files have several pages or frames, of which the first is read\n"
    assert pixels(saved([[0, 0], [0, 0]], tmp_path / "b.png"), side=2) == [0] * 4 and capsys.readouterr().out == ""


def test_what_is_no_image_of_8_bits_is_a_line(tmp_path):
    (tmp_path / "a.png").write_text("no image")
    with pytest.raises(SesameError, match=r"a\.png: no image of a format that Pillow reads; leave it out"):
        list(open_rows(source(tmp_path / "a.png")))
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.png", b"")
    with pytest.raises(SesameError, match=r"a\.zip: an archive; name the images in it, e\.g\. members: \['\*\.png'"):
        list(open_rows(source(tmp_path / "a.zip")))
    Image.fromarray(np.full((4, 4), 30_000, np.uint16)).save(tmp_path / "b.png")
    with pytest.raises(SesameError, match=r"b\.png: more than 8 bits a pixel \(I;16.*\); save it with 8"):
        list(open_rows(source(tmp_path / "b.png")))
    whole = saved([[0] * 64] * 64, tmp_path / "c.png").read_bytes()
    (tmp_path / "c.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SesameError, match=r"c\.png: a damaged image, or too large: "):
        list(open_rows(source(tmp_path / "c.png")))


def test_members_are_of_local_archives():
    of_url = {"kind": "url", "url": "https://a.b/c.zip", "sha256": "0" * 64, "members": ["*"]}
    with pytest.raises(ValidationError, match="members has no effect: a url source has its own; give them there"):
        params.ImagesSource.model_validate({"kind": "images", "source": of_url, "members": ["*"]})


@pytest.mark.skipif(not MNIST.exists(), reason="the digits are not here")
def test_every_digit_is_read():
    rows = [row for _, row in open_rows(source(MNIST, members=["test/*/*.png"]))]
    assert {digit: sum(row["folder"] == digit for row in rows) for digit in "0123456789"} == dict.fromkeys("0123456789", 200)
    assert {len(row["pixels"]) for row in rows} == {196}
