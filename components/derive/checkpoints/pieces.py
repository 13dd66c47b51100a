"""A sentencepiece model as a `tokenizer.json`, so that `AutoTokenizer` gives the same ids."""

from pathlib import Path
from types import ModuleType

from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, decoders, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Fast
from tokenizers.models import BPE

from components.core import storage
from components.core.errors import SesameError
from components.derive.checkpoints.parity import quiet_transformers
from components.text.tokenizer import CLS, SEP, SPECIALS, Tokenizer
from components.text.tokenizer.fast import SETTINGS
from components.text.tokenizer.spm import SentencePieces

AS_WRITTEN = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]


def _merges(model: sentencepiece_model_pb2.ModelProto) -> list[tuple[str, str]]:
    """Every pair of pieces that together are a piece, those of the best piece first. Special and byte pieces are never merged."""
    pieces = {piece.piece: number for number, piece in enumerate(model.pieces) if piece.type == piece.NORMAL}  # the best first
    cuts = ((number, piece[:i], piece[i:]) for piece, number in pieces.items() for i in range(1, len(piece)))
    merges = [(number, pieces[left], pieces[right], left, right) for number, left, right in cuts if left in pieces and right in pieces]
    return [(left, right) for *_, left, right in sorted(merges)]


def convert(path: Path) -> Fast:
    """`tokenizer.model` -> the same as a pipeline of the `tokenizers` library, without the form of a pair.

    The ids are the same for all text whose combining marks stand in the order of NFC or NFD; a stack of marks out of order,
    or one that composes across another mark, is normalised a little further here than by sentencepiece.
    Raises SesameError for a unigram model.
    """
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(path.read_bytes())
    byte_fallback = model.trainer_spec.byte_fallback
    if model.trainer_spec.model_type == model.trainer_spec.UNIGRAM:
        # `tokenizers` takes "[MASK]" in a text for that piece there, whatever its score, where a letter of it is unknown
        raise SesameError("a unigram tokenizer can't be written with the same ids for every text; bpe, characters and bytes can")
    # characters and bytes are pieces that never merge
    vocabulary = {piece.piece: number for number, piece in enumerate(model.pieces)}
    fast = Fast(BPE(vocabulary, _merges(model), unk_token="[UNK]", fuse_unk=True, byte_fallback=byte_fallback))
    fast.normalizer = normalizers.Sequence([
        # The library looks a whole grapheme up by its first character and drops the rest of it ("É" of two characters
        # becomes "e"). So compose what can be, and part the rest by a control character, which the map itself deletes.
        normalizers.NFC(),
        normalizers.Replace(Regex(r"(?<=.)(?=[^\x00-\x7f])"), "\x01"),
        normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap),
        normalizers.Replace(Regex(" {2,}"), " "),
        normalizers.Replace(Regex(" $"), ""),  # and not Strip, which takes other white space, too
    ])  # fmt: skip
    # a blank that the text begins with is the one that is put before it; what follows on a [MASK] in it gets none
    fast.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    fast.decoder = decoders.Sequence([*AS_WRITTEN, decoders.Strip(" ", 1, 0)])
    control = [piece.piece for piece in model.pieces[len(SPECIALS) :] if piece.type == piece.CONTROL]  # T5's sentinels
    fast.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in (*SPECIALS, *control)])
    return fast


def within_a_text(fast: Fast) -> None:
    """Have a byte-level tokenizer put its blank before a whole text alone, and not before what follows on a `[MASK]` in
    it."""
    lower = [normalizers.Lowercase()] if fast.normalizer.normalize_str("A") == "a" else []
    fast.normalizer = normalizers.Sequence([
        normalizers.NFKC(), *lower, normalizers.Replace(Regex(r"^\s+"), " "), normalizers.Strip(left=False, right=True),
    ])  # fmt: skip
    blank = pre_tokenizers.Metaspace(replacement=" ", prepend_scheme="first", split=False)
    fast.pre_tokenizer = pre_tokenizers.Sequence([blank, pre_tokenizers.ByteLevel(add_prefix_space=False)])


def write(tokens: Tokenizer, form: ModuleType, max_length: int, folder: Path, classifier: bool = False) -> None:
    """Put `tokenizer.json` and its settings into a folder. `form`: a family's `hub`, which says how a text and a pair
    are framed, which inputs the model takes, on which side it is padded and whether it goes on where a text ends. `classifier`: for
    a model that says something of a text, and does not go on.

    Unlike ours this tokenizer takes `[MASK]` in a text for the mask, as its users expect; `split_special_tokens=True`
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
        # transformers counts positions from the padding on, unless it generates
        padding_side="right" if classifier else getattr(form, "PADDING_SIDE", "right"),
        pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]",
        bos_token="[CLS]", eos_token="[SEP]",
    ).save_pretrained(folder)  # fmt: skip
    settings = storage.read_json(folder / SETTINGS)
    storage.write_json(folder / SETTINGS, settings | {"tokenizer_class": "PreTrainedTokenizerFast"})  # the name that version 4 knows, too
