"""Images as rows of text, a character for each pixel, so that every model of text reads and writes them (Chen et al. 2020, *Generative
Pretraining from Pixels*, section 3.1: images are made small, and their colours few)."""

import re
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path, PurePosixPath

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from components import params
from components.core.errors import SesameError, one_line
from components.text import sources
from components.text.sources.archive import open_members
from components.text.sources.file import SourceFile

FIRST = 0x4E00
"""Code point of the first colour: a Chinese character, each of which stands for a word where words are compared."""
FIRST_OF_WORDS = 0xAC00
"""The same where a word is a patch: a Korean syllable, several of which make a word."""


def open_rows(source: params.ImagesSource) -> Iterator[tuple[str, dict[str, str]]]:
    """`(place, {"pixels": text, "folder": name})` of each image: its pixels from the top left, line by line or patch by
    patch, and the folder that it is in.

    Of a file with several pages or frames the first is read, and such files are counted. Raises SesameError for a file
    that is no image of 8 bits a channel.
    """
    several = 0
    for file, path in _files(source):
        colours, pages = _colours(file, source)
        several += pages > 1
        yield file.name, {"pixels": written(colours, source), "folder": path.parent.name}
    if several:
        print(f"{source.shown}: {several:,} files have several pages or frames, of which the first is read", flush=True)


def _files(source: params.ImagesSource) -> Iterator[tuple[SourceFile, PurePosixPath]]:
    """Each image file, and its path, in an archive or not."""
    for file in sources.open_files(source.source):
        if source.members:
            yield from ((member, _in_archive(member.name)) for member in open_members(Path(file.name), source.members))
        else:
            yield file, _in_archive(file.name) if source.source.kind in ("pypi", "url") else PurePosixPath(file.name)


def _in_archive(name: str) -> PurePosixPath:
    """The path of a member, named `outer.zip: inner.tar: folder/file`; a folder may have a colon in its name, too."""
    archives = re.match(r".*\.(?:zip|tar|tar\.\w+|tgz): ", name)
    return PurePosixPath(name[archives.end() :] if archives else name.partition(": ")[2] or name)


def _colours(file: SourceFile, source: params.ImagesSource) -> tuple[np.ndarray, int]:
    """The colour of each pixel of an image, (side * side,) integers, and the number of its pages or frames."""
    channels = 1 if source.colours == "grey" else 3
    with file.open() as stream:
        stored = BytesIO(stream.read())
    try:
        with Image.open(stored) as image:
            pages = getattr(image, "n_frames", 1)
            if image.mode.startswith(("I", "F")):  # Pillow would cut values off at 255
                raise SesameError(f"{file.name}: more than 8 bits a pixel ({image.mode}); save it with 8")
            image = ImageOps.exif_transpose(image)  # a photo is stored as the camera was held, with a tag that says how
            if image.has_transparency_data:  # on white, as on a page: below full transparency any colour may be stored
                ground = Image.new("RGBA", image.size, "white")
                image = Image.alpha_composite(ground, image.convert("RGBA"))
            # BOX is the mean of the pixels that become one
            small = image.convert("L" if channels == 1 else "RGB").resize((source.side, source.side), Image.Resampling.BOX)
            values = np.asarray(small, dtype=np.int64).reshape(-1, channels)
    except UnidentifiedImageError:
        if file.name.endswith((".zip", ".tar", ".tar.gz", ".tgz")):
            raise SesameError(f"{file.name}: an archive; name the images in it, e.g. members: ['*.png', '*/*.png']") from None
        raise SesameError(f"{file.name}: no image of a format that Pillow reads; leave it out of the source's paths or members") from None
    except (Image.DecompressionBombError, OSError, ValueError, SyntaxError) as error:
        raise SesameError(f"{file.name}: a damaged image, or too large: {one_line(error)}; leave it out, or save it anew") from None
    levels = values * source.levels // 256
    return levels @ source.levels ** np.arange(channels)[::-1], pages


def written(colours: np.ndarray, source: params.ImagesSource) -> str:
    """The text of an image's pixels, (side * side,)."""
    if not source.patch:
        return "".join(chr(FIRST + colour) for colour in colours.tolist())
    patches = colours[_order(source)].tolist()
    return " ".join("".join(chr(FIRST_OF_WORDS + colour) for colour in patch) for patch in patches)


def _order(source: params.ImagesSource) -> np.ndarray:
    """(patches, pixels of a patch): which pixels, counted line by line, each patch has."""
    patches = source.side // source.patch
    lines = np.arange(source.side**2).reshape(patches, source.patch, patches, source.patch)
    return lines.swapaxes(1, 2).reshape(patches**2, source.patch**2)


def picture(text: str, source: params.ImagesSource) -> np.ndarray:
    """The image that a text of `open_rows`, or one that a model wrote, stands for: (side, side) or (side, side, 3), uint8.

    What is no pixel is left out; of a text that is too short the rest has colour 0. Each level is shown by its middle.
    """
    channels, first = 1 if source.colours == "grey" else 3, FIRST_OF_WORDS if source.patch else FIRST
    known = [ord(character) - first for character in text if 0 <= ord(character) - first < source.levels**channels]
    colours = np.zeros((source.side**2, 1), np.int64)
    order = _order(source).ravel() if source.patch else np.arange(source.side**2)
    colours[order[: len(known)], 0] = known[: len(colours)]
    levels = colours // source.levels ** np.arange(channels)[::-1] % source.levels
    image = ((levels * 256 + 128) // source.levels).astype(np.uint8)
    return image.reshape(source.side, source.side, *([3] if channels == 3 else []))
