"""Converts a sentencepiece model to a `tokenizer.json`, so that `AutoTokenizer` gives the same ids."""

from pathlib import Path
from types import ModuleType

from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, decoders, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Fast
from tokenizers.models import BPE

from components.core import storage
from components.core.errors import SesameError
from components.derive.checkpoints.parity import quiet_transformers
from components.stages.outputs import read_json
from components.text.tokenizer import CLS, SEP, SPECIALS, Tokenizer
from components.text.tokenizer.fast import SETTINGS
from components.text.tokenizer.spm import SentencePieces

AS_WRITTEN = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]


def _merges(model: sentencepiece_model_pb2.ModelProto) -> list[tuple[str, str]]:
    """Every pair of tokens that together are a token, the best first. Special and byte tokens are never merged."""
    pieces = {piece.piece: number for number, piece in enumerate(model.pieces) if piece.type == piece.NORMAL}  # the best first
    cuts = ((number, piece[:i], piece[i:]) for piece, number in pieces.items() for i in range(1, len(piece)))
    merges = [(number, pieces[left], pieces[right], left, right) for number, left, right in cuts if left in pieces and right in pieces]
    return [(left, right) for *_, left, right in sorted(merges)]


def convert(path: Path) -> Fast:
    """Convert `tokenizer.model` to a pipeline of the `tokenizers` library, without the template of a pair.

    The ids are the same for text in NFC or NFD. They can differ where several combining marks follow a letter, or one follows a
    character that NFKC takes apart, as a ligature: there the library composes other characters than sentencepiece.
    Raises SesameError for a unigram model.
    """
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(path.read_bytes())
    byte_fallback = model.trainer_spec.byte_fallback
    if model.trainer_spec.model_type == model.trainer_spec.UNIGRAM:
        # `tokenizers` reads "[MASK]" in a text as that token, whatever its score, where one of its letters is unknown
        raise SesameError("a unigram tokenizer can't be exported with the same ids for every text; bpe, characters and bytes can")
    # characters and bytes are tokens that never merge
    vocabulary = {piece.piece: number for number, piece in enumerate(model.pieces)}
    fast = Fast(BPE(vocabulary, _merges(model), unk_token="[UNK]", fuse_unk=True, byte_fallback=byte_fallback))
    fast.normalizer = normalizers.Sequence([
        # The library looks up a grapheme by its first character and drops the rest ("É" of two characters becomes "e").
        # So compose what can be composed, and separate the rest by a control character, which the map deletes.
        normalizers.NFC(),
        normalizers.Replace(Regex(r"(?<=.)(?=[^\x00-\x7f])"), "\x01"),
        normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap),
        normalizers.NFC(),  # half-width katakana and its marks, which only now are characters that compose
        normalizers.Replace(Regex(" {2,}"), " "),
        normalizers.Replace(Regex(" $"), ""),  # not Strip, which removes other white space, too
    ])  # fmt: skip
    # a blank at the start of a text is the one that is added; text after a [MASK] gets none
    fast.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    fast.decoder = decoders.Sequence([*AS_WRITTEN, decoders.Strip(" ", 1, 0)])
    control = [piece.piece for piece in model.pieces[len(SPECIALS) :] if piece.type == piece.CONTROL]  # T5's sentinels
    fast.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in (*SPECIALS, *control)])
    # what sentencepiece does not normalise
    kept = [piece.piece for piece in model.pieces if piece.type == piece.USER_DEFINED]
    fast.add_tokens([AddedToken(token, special=False, normalized=False) for token in kept])
    return fast


def within_a_text(fast: Fast) -> None:
    """Make a byte-level tokenizer add its blank only before a text, and not after a `[MASK]` in it."""
    lower = [normalizers.Lowercase()] if fast.normalizer.normalize_str("A") == "a" else []
    fast.normalizer = normalizers.Sequence([
        normalizers.NFKC(), *lower, normalizers.Replace(Regex(r"\A\s+"), " "), normalizers.Strip(left=False, right=True),
    ])  # fmt: skip
    blank = pre_tokenizers.Metaspace(replacement=" ", prepend_scheme="first", split=False)
    fast.pre_tokenizer = pre_tokenizers.Sequence([blank, pre_tokenizers.ByteLevel(add_prefix_space=False)])


def write(tokens: Tokenizer, form: ModuleType, max_length: int, folder: Path, classifier: bool = False) -> None:
    """Write `tokenizer.json` and its settings. `form`: a family's `hub`, with the templates of a text and a pair, the inputs of the model,
    the side of padding, and whether the model continues texts. `classifier`: for a model that classifies.

    Unlike ours this tokenizer reads `[MASK]` in a text as the mask token, as users expect; `split_special_tokens=True`
    turns that off."""
    fast = convert(tokens.path) if isinstance(tokens, SentencePieces) else Fast.from_file(str(tokens.path))
    if isinstance(fast.decoder, decoders.ByteLevel):
        within_a_text(fast)
    if getattr(form, "CONTINUES", False) and isinstance(tokens, SentencePieces):
        fast.decoder = decoders.Sequence(AS_WRITTEN)  # a continuation is decoded alone, and its first blank is text
    single, pair, inputs = getattr(form, "CLASSIFIER_FORM", form.FORM) if classifier else form.FORM
    fast.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)])
    quiet_transformers().PreTrainedTokenizerFast(
        tokenizer_object=fast, model_input_names=inputs, model_max_length=max_length, clean_up_tokenization_spaces=False,
        # transformers counts positions from the padding, unless it generates
        padding_side="right" if classifier else getattr(form, "PADDING_SIDE", "right"),
        pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]",
        bos_token="[CLS]", eos_token="[SEP]",
    ).save_pretrained(folder)  # fmt: skip
    settings = read_json(folder / SETTINGS)
    storage.write_json(folder / SETTINGS, settings | {"tokenizer_class": "PreTrainedTokenizerFast"})  # the name in version 4, too
