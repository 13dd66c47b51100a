"""What the encoder of patches needs of its images. It groups tokens by their number alone: where an image had fewer or more
tokens than its patches, all that follow would have pixels of two patches.

Each check raises ValueError with the place and the way to mend it.
"""

from collections.abc import Iterator

from components.models.common.config import ArchitectureBlock
from components.models.patch_encoder.config import PatchEncoderArchitecture
from components.params.models import Model
from components.params.sources import ImagesSource
from components.params.tasks import Task
from components.params.text import Tokenizer
from components.params.whole import Params


def patches_fit(p: Params, place: str, model: Model, tokenizer: Tokenizer | None) -> None:
    """Of the text that a model is pre-trained on."""
    architecture, encoding = model.architecture, p.encodings.get(model.encoding)
    if not isinstance(architecture, PatchEncoderArchitecture) or encoding is None:
        return
    if getattr(model.objective, "paired", False):
        raise ValueError(
            f"{place}.objective reads pairs, and architecture patch_encoder one image; set next_sentence: false"
        )
    if getattr(model.objective, "inputs", None) == "full_sentences":  # the next image would begin within a patch
        raise ValueError(f"{place}.objective.inputs: full_sentences puts several images into a row; leave inputs out")
    for where, source in _images(p, encoding.corpus):
        _image_fits(f"{place}.architecture", architecture, architecture.max_length, where, source)
        if tokenizer and not (
            tokenizer.kind == "characters" and not tokenizer.byte_fallback and tokenizer.character_coverage == 1
        ):
            raise ValueError(
                f"{place}: architecture patch_encoder needs one token for each pixel; "
                f"give tokenizers.{encoding.tokenizer} kind: characters, byte_fallback: false and character_coverage: 1.0"
            )


def images_fit(place: str, model: str, architecture: ArchitectureBlock, max_length: int, name: str, task: Task) -> None:
    """Of a task that a recipe at `place` adapts a model to."""
    if not isinstance(architecture, PatchEncoderArchitecture):
        return
    if task.table and task.table.text_b:
        raise ValueError(
            f"{place}: {name} has pairs, and {model} reads one image (architecture patch_encoder); take another task"
        )
    for split, block in task.splits.items():
        if isinstance(block.source, ImagesSource):
            _image_fits(place, architecture, max_length, f"tasks.{name}.{split}.source", block.source)


def _images(p: Params, corpus: str) -> Iterator[tuple[str, ImagesSource]]:
    """The images of a corpus or a mix, each with its place in params.yaml."""
    mix = p.mixes.get(corpus)
    corpus = mix.corpus if mix else corpus
    parts, tasks = p.corpora[corpus].parts if corpus in p.corpora else (), mix.tasks if mix else ()
    sources = {f"corpora.{corpus}.parts[{number}].source": part.source for number, part in enumerate(parts)}
    sources |= {f"tasks.{name}.train.source": p.tasks[name].train.source for name in tasks if name in p.tasks}
    yield from ((where, source) for where, source in sources.items() if isinstance(source, ImagesSource))


def _image_fits(
    place: str, architecture: PatchEncoderArchitecture, max_length: int, where: str, source: ImagesSource
) -> None:
    size, reads = (source.patch or 0) ** 2 + 1, architecture.patch_tokens
    if reads != size:
        to_do = f"take patch_tokens: {size}" if source.patch else "give the source a patch, e.g. 2, of 5 tokens"
        raise ValueError(f"{place}: patch_tokens {reads} is not the size of a patch of {where}; {to_do}")
    if max_length < (image := 2 + (source.side // source.patch) ** 2 * size):
        raise ValueError(
            f"{place}: max_length {max_length} cuts the images of {where}, which have {image} tokens; take {image}"
        )
