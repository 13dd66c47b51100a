"""Checks that `transformers` and our modules have the same ids for a text and compute the same outputs."""

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from components.core.errors import SesameError, one_line
from components.models.common.layout import Layout
from components.models.contract import LanguageModel
from components.stages.outputs import read_json
from components.text.tokenizer import Tokenizer
from components.text.tokenizer.fast import FastTokenizer

TOLERANCE = 1e-4
"""The largest allowed absolute difference of hidden states, pooled vectors and logits."""

TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    'In 1823 the president told Congress, among other things, that "the American continents" were closed to new colonies; few took note.',
    "naïve café, 12,5 °C — Ёлка, 東京, नमस्ते, 👍🏽!",
    "  two  spaces\tand a tab, then [MASK] and </s> as plain text ",
    "it 's a charming and often affecting journey .",
    "two\n\nparagraphs\r\n and ﾃﾞｰﾀ",
    "من می\u200cخواهم، کتاب\u200cها",
    "",
)


def quiet_transformers():
    """The `transformers` package without its progress bars and reports."""
    import transformers  # takes seconds

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


def check(
    folder: Path, model: LanguageModel, layout: Layout, tokens: Tokenizer | FastTokenizer, absent: Sequence[str],
    texts: Sequence[str] = TEXTS, place: str = "",
) -> float:  # fmt: skip
    """The largest absolute difference between the outputs of `model` and those of `transformers` from `folder`, on `texts`.

    Compares the last layer (of an encoder-decoder, the encoder's) and, where the checkpoint has them, pooled vectors and logits,
    in float32.
    Above TOLERANCE it is computed again in float64, because a model with large activations has large rounding errors.
    Raises SesameError when it is above TOLERANCE there, too, or when a text has other ids; `place` is what messages call the folder.
    """
    transformers = quiet_transformers()
    theirs = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    encoded = tokens.encode(list(texts))
    for text, ids in zip(texts, encoded, strict=True):
        if theirs(text, add_special_tokens=False, split_special_tokens=True)["input_ids"] != ids:
            raise SesameError(f"{place or folder}: transformers tokenises {text!r} differently")
    behind = layout.padding_after(model)
    frame = len(tokens.prefix) + len(tokens.suffix)
    room = model.max_length - frame - behind
    ends = [layout.comparable_length(model, min(len(ids), room) + frame) - frame for ids in encoded]
    rows = [torch.tensor([*tokens.prefix, *ids[:end], *tokens.suffix]) for ids, end in zip(encoded, ends, strict=True)]
    lengths = torch.tensor([len(row) for row in rows])
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=theirs.pad_token_id or 0)
    ids = nn.functional.pad(ids, (0, behind), value=theirs.pad_token_id or 0)
    real = torch.arange(ids.shape[1]) < lengths[:, None]
    segments = torch.zeros_like(ids)
    if layout.reads_segments:
        kinds = getattr(model, "segment_embedding", None)
        segments[:, 4:] = 0 if kinds and kinds.num_embeddings == 1 else 1
        if len(tokens.suffix) > 1:  # XLNet's texts end with a token of a third kind
            segments[torch.arange(len(rows)), lengths - 1] = 2
    inputs = {"input_ids": ids, "attention_mask": real.long()} | ({"token_type_ids": segments} if layout.reads_segments else {})
    if layout.decodes:  # the texts again, as targets
        inputs["decoder_input_ids"] = torch.cat([torch.full_like(ids[:, :1], model.start), ids[:, :-1]], 1)

    @torch.no_grad()
    def largest(dtype: torch.dtype) -> float:
        def run(loader):
            return _load(loader, folder, dtype)(**inputs)

        hidden = model.to(dtype).eval().features(ids, lengths, segments)[:, :, -1]
        body = run(transformers.AutoModel)
        last = body.encoder_last_hidden_state if layout.decodes else body.last_hidden_state
        same = real & (torch.arange(real.shape[1]) >= layout.first_differs)
        compared = [(hidden[same], last[same])]
        if hasattr(body, "pooler_output") and "pooler" not in absent:
            compared.append((model.pool(hidden, lengths), body.pooler_output))
        if not {"head_bias", "output_embedding"} & {*absent}:
            logits = run(getattr(transformers, layout.language_model)).logits[..., : tokens.vocab_size]
            top = model(ids, lengths, ids) if layout.decodes else hidden
            compared.append((model.logits(top)[real], logits[real]))
        return float(torch.stack([(ours - other).abs().max() for ours, other in compared]).max())  # which keeps NaN

    difference = largest(torch.float32)
    if not difference < TOLERANCE and not (exact := largest(torch.float64)) < TOLERANCE:  # NaN is not, either
        shown = difference if math.isnan(exact) else exact  # some masks of transformers are NaN in float64
        hint = _pads_differ(folder, theirs.pad_token_id)
        raise SesameError(f"{place or folder}: transformers computes other outputs, by up to {shown:.2g} ({TOLERANCE:g} is allowed){hint}")
    return difference


def _pads_differ(folder: Path, used: int | None) -> str:
    """A frequent reason: RoBERTa's positions depend on the id of padding, which a tokenizer may have changed."""
    declared = read_json(folder / "config.json").get("pad_token_id")
    differ = None not in (declared, used) and declared != used
    return f"; config.json says pad_token_id {declared}, the tokenizer {used}" if differ else ""


def _load(loader, folder: Path, dtype: torch.dtype) -> nn.Module:
    """The network that `transformers` makes of a folder."""
    try:
        return loader.from_pretrained(folder, local_files_only=True, trust_remote_code=False, dtype=dtype).eval()
    except Exception as error:  # of many kinds: an index without metadata, an id for padding that there is not
        raise SesameError(f"transformers can't load it: {type(error).__name__}: {one_line(error)}") from None
