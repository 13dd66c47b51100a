"""`python -m components.derive.words NAME`: data/vectors/<vectors> -> data/models/<name>, word vectors as a model.

So vectors come under the same heads, probes and random twins as pre-trained models: GLUE's CBoW (Wang et al. 2018) is their mean under a
head, its BiLSTM the method `features`.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from tokenizers import Regex, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Fast
from tokenizers.models import WordLevel

from components import params
from components.core import storage
from components.core.errors import SesameError
from components.core.tracking import Run
from components.core.words import LETTERS
from components.embeddings import space
from components.models import store
from components.models.static.config import StaticArchitecture
from components.stages import stage
from components.text.tokenizer import CLS, MASK, PAD, SEP, SPECIALS, UNK
from components.text.tokenizer.fast import FILE, SETTINGS, FastTokenizer

PIECES = LETTERS.replace(r"[^\W\d_]", r"[\p{L}\p{Nl}\p{No}]") + "|[0-9]+|."
"""What a text is cut into: words as vectors are trained on them, runs of digits, and every other character by itself. The regular
expressions of `tokenizers` count no ² among what Python calls letters."""


def pipeline(lowercase: bool) -> Fast:
    """A tokenizer without a vocabulary: how a text becomes pieces."""
    tokenizer = Fast(WordLevel({SPECIALS[UNK]: UNK}, unk_token=SPECIALS[UNK]))
    final_sigma = normalizers.Replace(Regex(r"(?<=\p{L})σ(?!\p{L})"), "ς")  # as Python's `lower` has it, and `Lowercase` has not
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), *([normalizers.Lowercase(), final_sigma] if lowercase else [])])
    pieces = pre_tokenizers.Split(Regex(PIECES), behavior="isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pieces])
    return tokenizer


def readable(words: list[str], tokenizer: Fast) -> list[int]:
    """The positions of the words that are one piece of a text; `New_York` or `n't` of published vectors are several."""
    texts = (tokenizer.normalizer.normalize_str(word) for word in words)
    pieces = (tokenizer.pre_tokenizer.pre_tokenize_str(text) for text in texts)
    return [i for i, (word, cut) in enumerate(zip(words, pieces, strict=True)) if [piece for piece, _ in cut] == [word]]


def write_tokenizer(tokenizer: Fast, words: list[str], folder: Path) -> None:
    """Give a pipeline its vocabulary, behind the special tokens, and write it."""
    tokenizer.model = WordLevel({word: i for i, word in enumerate((*SPECIALS, *words))}, unk_token=SPECIALS[UNK])
    tokenizer.add_special_tokens(list(SPECIALS))
    marks = [(SPECIALS[i], i) for i in (CLS, SEP)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=marks
    )
    tokenizer.save(str(folder / FILE))
    roles = {"pad": PAD, "unk": UNK, "cls": CLS, "eos": SEP, "mask": MASK}
    storage.write_json(folder / SETTINGS, {f"{role}_token": SPECIALS[i] for role, i in roles.items()})


def word_model(all_params: params.Params, name: str, run: Run) -> dict:
    """Save vectors as a model; returns the counts. Raises SesameError where no word is one piece of a text."""
    block = all_params.word_models[name]
    vectors = space.load(Path("data/vectors", block.vectors))
    cased = space.has_capitals(vectors.words)
    tokenizer = pipeline(lowercase=not cased)
    kept = readable(vectors.words, tokenizer)
    if not kept:
        raise SesameError(f"word_models.{name}: none of the {len(vectors.words):,} words of {block.vectors} is a word of a text")
    matrix = torch.from_numpy(vectors.vectors[kept])
    scale = float(matrix.square().mean().sqrt())
    architecture = StaticArchitecture(name="static", vector_size=matrix.shape[1], vector_std=scale, max_length=block.max_length)
    weight = torch.cat([torch.zeros(len(SPECIALS), matrix.shape[1]), matrix])
    with TemporaryDirectory() as temporary, storage.output(Path("data/models", name)) as folder:
        write_tokenizer(tokenizer, [vectors.words[i] for i in kept], Path(temporary))
        tokens = FastTokenizer(Path(temporary))
        store.save(folder, {"token_embedding.weight": weight}, architecture, tokens, lineage=[{"by": "vectors", "vectors": block.vectors}])
    one_piece = {vectors.words[i] for i in kept}
    several = [word for word in vectors.words if word not in one_piece]
    left_out = f"; left out, as they are several words of a text: {len(several):,}, as {', '.join(several[:3])}" if several else ""
    print(f"{len(kept):,} words of {matrix.shape[1]} numbers{left_out}", flush=True)
    run.tag(model=name, on=block.vectors)
    return {"parameters": weight.numel(), "vocab_size": len(kept), "left_out": len(several), "cost": {"tokens": 0}}


if __name__ == "__main__":
    stage.main("word_model", word_model)
