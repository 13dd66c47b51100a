"""Checkpoints of `transformers` come in and go out with the same numbers and the same ids; a broken one is one line and leaves nothing."""

import json
import pickle
import re
import warnings
from pathlib import Path

import pytest
import sentencepiece
import torch
import transformers
from ruamel.yaml import YAML
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer as Fast
from tokenizers import models as kinds
from tokenizers import pre_tokenizers, processors, trainers
from typer.testing import CliRunner

from components import params
from components.core import storage
from components.core.errors import SesameError
from components.core.tracking import Run
from components.derive.checkpoints import __main__ as stage
from components.derive.checkpoints import export, hub, parity, pieces
from components.derive.checkpoints.card import licences_of
from components.generate import filling, writing
from components.models import holes as model_holes
from components.models import store
from components.models.bilm.config import BiLMArchitecture
from components.models.deberta import hub as deberta
from components.models.deberta.config import DebertaArchitecture
from components.models.decoder.config import DecoderArchitecture
from components.models.encoder.config import EncoderArchitecture
from components.models.xlnet.config import XLNetArchitecture
from components.params import Greedy
from components.stages import registry
from components.text import sources, tokenizer
from components.text.sources import download
from components.text.tokenizer import MASK
from pipelines import cli
from tests.conftest import text, tiny_params

ROOT = Path(__file__).parents[2]
SIZES = {"num_hidden_layers": 3, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48, "max_position_embeddings": 66}
DEBERTA = {"relative_attention": True, "pos_att_type": "p2c|c2p", "position_biased_input": False}
XLNET_SIZES = {"n_layer": 3, "d_model": 32, "n_head": 4, "d_inner": 48}
GPT_SIZES = {"n_layer": 3, "n_embd": 32, "n_head": 4, "n_inner": 48, "n_positions": 64}
NEOX_SIZES = {
    **SIZES, "max_position_embeddings": 64, "use_parallel_residual": False, "rotary_pct": 1.0,
}  # fmt: skip

SENTENCES = [
    "it 's a charming and often affecting journey .",
    "unflinchingly bleak and desperate",
    "allows us to hope that nolan is poised to embark a major career as a commercial yet inventive filmmaker .",
    "the acting , costumes , music , cinematography and sound are all astounding given the production 's austere locales .",
    "Fellow-Citizens of the Senate and House of Representatives: In meeting you again I feel much satisfaction.",
    "La tour Eiffel, haute de 330 m, fut achevée en 1889 ; « Paris » l'a gardée.",
    "Die Straße zum Fluß führt über 3 ½ km – größtenteils bergauf.",
    "Москва́ — столица России. 東京は日本の首都です。 서울",
]
ODD = [
    "", " ", "  two  spaces ", "\ttab\nand\r\nlines ", "[MASK]", "a[MASK]b [CLS] [SEP][PAD] [UNK]", "<s> </s> <|endoftext|>",
    "▁", "a▁b ▁▁c", "\u3000wide\u00a0space\u200b", "👍🏽 👩‍👩‍👧 1️⃣ ®️ A🏽", "E\u0301cole e\u0301cole X\u0301x\u0301", "ﬁn Ａ① ™ ½ ǅ İ ß ς",
    "\x00\x85\ufeff\ufffd", "नमस्ते שָׁלוֹם ﷺ", "\u1100\u1161\u11a8", "a" * 300,
]  # fmt: skip


def trained(model, trainer, pre_tokenizer) -> Fast:
    fast = Fast(model)
    fast.pre_tokenizer = pre_tokenizer
    fast.train_from_iterator(text(100).splitlines() + SENTENCES, trainer)
    return fast


def wordpiece(folder: Path, size: int = 300) -> int:
    """A BERT tokenizer in a folder; its size."""
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=specials)
    fast = trained(kinds.WordPiece(unk_token="[UNK]"), trainer, pre_tokenizers.BertPreTokenizer())
    transformers.BertTokenizer(vocab=fast.get_vocab()).save_pretrained(folder)
    return fast.get_vocab_size()


def byte_bpe(kind, specials: list[str]):
    def write(folder: Path, size: int = 400) -> int:
        trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=specials, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
        fast = trained(kinds.BPE(), trainer, pre_tokenizers.ByteLevel(add_prefix_space=False))
        model = json.loads(fast.to_str())["model"]
        kind(vocab=fast.get_vocab(), merges=[tuple(merge) for merge in model["merges"]]).save_pretrained(folder)
        return fast.get_vocab_size()

    return write


def unigram(folder: Path, size: int = 300) -> int:
    """An XLNet tokenizer in a folder; its size."""
    specials = ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"]
    trainer = trainers.UnigramTrainer(vocab_size=size, special_tokens=specials, unk_token="<unk>")
    fast = trained(kinds.Unigram(), trainer, pre_tokenizers.Metaspace())
    vocab = [tuple(piece) for piece in json.loads(fast.to_str())["model"]["vocab"]]
    transformers.XLNetTokenizer(vocab=vocab).save_pretrained(folder)
    return fast.get_vocab_size()


roberta_bpe = byte_bpe(transformers.RobertaTokenizer, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
gpt_bpe = byte_bpe(transformers.GPT2Tokenizer, ["<|endoftext|>"])

CHECKPOINTS = {
    "bert": (wordpiece, transformers.BertForPreTraining, transformers.BertConfig, SIZES),
    "bert_tanh": (
        wordpiece, transformers.BertForPreTraining, transformers.BertConfig,
        {**SIZES, "hidden_act": "gelu_new", "layer_norm_eps": 1e-6},
    ),
    "bert_body": (wordpiece, transformers.BertModel, transformers.BertConfig, SIZES),
    "bert_mlm": (wordpiece, transformers.BertForMaskedLM, transformers.BertConfig, SIZES),
    "bert_classifier": (wordpiece, transformers.BertForSequenceClassification, transformers.BertConfig, SIZES),
    "roberta": (
        roberta_bpe, transformers.RobertaForMaskedLM, transformers.RobertaConfig,
        {**SIZES, "type_vocab_size": 1, "layer_norm_eps": 1e-5},
    ),
    "xlm-roberta": (roberta_bpe, transformers.XLMRobertaForMaskedLM, transformers.XLMRobertaConfig, {**SIZES, "type_vocab_size": 1}),
    "distilbert": (
        wordpiece, transformers.DistilBertForMaskedLM, transformers.DistilBertConfig,
        {"n_layers": 3, "dim": 32, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 66},
    ),
    "albert": (wordpiece, transformers.AlbertForPreTraining, transformers.AlbertConfig, {**SIZES, "embedding_size": 16}),
    "albert_body": (wordpiece, transformers.AlbertModel, transformers.AlbertConfig, {**SIZES, "embedding_size": 32}),
    "electra_generator": (wordpiece, transformers.ElectraForMaskedLM, transformers.ElectraConfig, {**SIZES, "embedding_size": 16}),
    "electra_discriminator": (
        wordpiece, transformers.ElectraForPreTraining, transformers.ElectraConfig, {**SIZES, "embedding_size": 32},
    ),
    "deberta_v3": (
        wordpiece, transformers.DebertaV2Model, transformers.DebertaV2Config,
        {**SIZES, **DEBERTA, "position_buckets": 8, "norm_rel_ebd": "layer_norm", "share_att_key": True},
    ),
    "deberta_v1": (wordpiece, transformers.DebertaModel, transformers.DebertaConfig, {**SIZES, **DEBERTA, "type_vocab_size": 0}),
    "xlnet": (unigram, transformers.XLNetLMHeadModel, transformers.XLNetConfig, XLNET_SIZES),
    "roberta_body": (roberta_bpe, transformers.RobertaModel, transformers.RobertaConfig, {**SIZES, "type_vocab_size": 1}),
    "gpt2": (gpt_bpe, transformers.GPT2LMHeadModel, transformers.GPT2Config, GPT_SIZES),
    "gpt2_erf": (
        gpt_bpe, transformers.GPT2LMHeadModel, transformers.GPT2Config,
        {**GPT_SIZES, "activation_function": "gelu", "n_inner": None},
    ),
    "gpt2_untied": (
        gpt_bpe, transformers.GPT2LMHeadModel, transformers.GPT2Config, {**GPT_SIZES, "tie_word_embeddings": False},
    ),
    "gpt_neox": (gpt_bpe, transformers.GPTNeoXForCausalLM, transformers.GPTNeoXConfig, NEOX_SIZES),
    "gpt_neox_tied": (
        gpt_bpe, transformers.GPTNeoXForCausalLM, transformers.GPTNeoXConfig,
        {**NEOX_SIZES, "tie_word_embeddings": True, "hidden_act": "gelu_new", "layer_norm_eps": 1e-6},
    ),
    "roformer": (wordpiece, transformers.RoFormerForMaskedLM, transformers.RoFormerConfig, SIZES),
    "roformer_untied": (
        wordpiece, transformers.RoFormerForMaskedLM, transformers.RoFormerConfig,
        {**SIZES, "tie_word_embeddings": False, "embedding_size": 16},
    ),
    "bert_untied": (
        wordpiece, transformers.BertForPreTraining, transformers.BertConfig, {**SIZES, "tie_word_embeddings": False},
    ),
    "albert_untied": (
        wordpiece, transformers.AlbertForPreTraining, transformers.AlbertConfig,
        {**SIZES, "embedding_size": 16, "tie_word_embeddings": False},
    ),
    "electra_untied": (
        wordpiece, transformers.ElectraForMaskedLM, transformers.ElectraConfig,
        {**SIZES, "embedding_size": 16, "tie_word_embeddings": False},
    ),
}  # fmt: skip


@pytest.fixture
def given(project):
    """Write a checkpoint of `transformers` with random weights, far from zero and one, and its tokenizer."""

    def write(name: str, **settings) -> Path:
        make_tokenizer, model_class, config_class, sizes = CHECKPOINTS[name]
        folder = project / "given" / name
        size = make_tokenizer(folder)
        torch.manual_seed(0)
        model = model_class(config_class(**{"vocab_size": size, **sizes, **settings}))
        for parameter in filter(lambda one: one.requires_grad, model.parameters()):  # RoFormer's table is no weight
            torch.nn.init.normal_(parameter, 1.0 if parameter.ndim == 1 and parameter.std() == 0 and parameter.mean() == 1 else 0.0, 0.1)
        model.save_pretrained(folder)
        return folder

    return write


def bring(folder: Path, name: str = "brought", pattern: str = "*") -> dict:
    config = folder / "config.json"
    written = config.read_text() if config.exists() else ""
    kinds_of = {'"gpt2"': "decoder", '"gpt_neox"': "decoder", '"deberta': "deberta", '"xlnet"': "xlnet"}
    family = next((family for kind, family in kinds_of.items() if kind in written), "encoder")
    block = {"family": family, "licence": "none", "source": {"kind": "files", "paths": [f"{folder}/{pattern}"]}}
    return stage.bring(params.check(tiny_params(checkpoints={name: block})), name, Run(None))


def batch(tokens, texts: list[str], max_length: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rows = [torch.tensor([*tokens.prefix, *ids[: max_length - 4], *tokens.suffix]) for ids in tokens.encode(texts)]
    lengths = torch.tensor([len(row) for row in rows])
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=1)
    return ids, lengths, torch.arange(ids.shape[1]) < lengths[:, None]


@torch.no_grad()
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_an_imported_checkpoint_computes_what_transformers_computes(given, name):
    folder = given(name)
    assert bring(folder)["max_abs_difference"] < 1e-4
    model, tokens = store.load(Path("data/models/brought"))
    theirs = CHECKPOINTS[name][1].from_pretrained(folder).eval()
    ids, lengths, real = batch(tokens, SENTENCES, model.max_length)
    two_kinds = name.startswith(("bert", "albert", "electra", "roformer", "xlnet"))
    long = {"xlnet": 512}.get(name, 64 + 2 * (two_kinds or name.startswith(("distilbert", "deberta"))))
    assert not real.all() and model.max_length == long
    segments = (torch.arange(ids.shape[1]) > 5).long().repeat(len(ids), 1) * two_kinds
    kinds_of_token = segments.clone()
    if name == "xlnet":  # its tokenizer says so of <cls>, our model knows it
        kinds_of_token[torch.arange(len(ids)), lengths - 1] = 2
    inputs = {"input_ids": ids, "attention_mask": real.long()}
    inputs |= {} if name.startswith(("gpt", "distilbert", "deberta")) else {"token_type_ids": kinds_of_token}
    expected = theirs(**inputs, output_hidden_states=True)
    hidden = model.eval().features(ids, lengths, segments)
    for ours, other in zip(hidden.unbind(2), expected.hidden_states, strict=True):
        torch.testing.assert_close(ours[real], other[real], atol=1e-4, rtol=0)
    last, absent = hidden[:, :, -1], store.about(Path("data/models/brought")).absent
    other_heads = {
        "bert_classifier": ["classifier.bias", "classifier.weight"],
        "electra_discriminator": [
            f"discriminator_predictions.dense{part}.{kind}" for part in ("", "_prediction") for kind in ("bias", "weight")
        ],
    }
    logits = expected.get("prediction_logits", expected.get("logits")) if name not in other_heads else None
    assert ("head_bias" in absent) == (logits is None)
    if logits is not None:
        torch.testing.assert_close(model.logits(last)[real], logits[real], atol=1e-4, rtol=0)
    if pooled := expected.get("pooler_output") is not None:
        torch.testing.assert_close(model.pool(last, lengths), expected.pooler_output, atol=1e-4, rtol=0)
    for question in {"seq_relationship_logits", "sop_logits"} & set(expected):
        torch.testing.assert_close(model.next_sentence(model.pool(last, lengths)), expected[question], atol=1e-4, rtol=0)
    unpooled = (
        "bert_mlm",
        "roberta",
        "xlm-roberta",
        "distilbert",
        "electra_generator",
        "electra_discriminator",
        "electra_untied",
        "roformer",
        "roformer_untied",
        "deberta_v3",
        "deberta_v1",
        "xlnet",
    )
    assert ("pooler" in absent) == (name in unpooled) and pooled == name.endswith("body")
    left_out = json.loads(Path("data/models/brought/card.json").read_text())["left_out"]
    assert sorted(left_out) == other_heads.get(name, [])


@torch.no_grad()
@pytest.mark.parametrize(
    "name", [name for name in CHECKPOINTS if name.startswith(("gpt_neox", "roformer")) or "untied" in name]
)
def test_what_came_in_goes_out_bit_for_bit(given, name):
    """Rotary positions, untied outputs: logits within 1e-5 beside padding, and each weight written as it came."""
    folder = given(name)
    figures = bring(folder)
    theirs = CHECKPOINTS[name][1].from_pretrained(folder).eval()
    model, tokens = store.load(Path("data/models/brought"))
    ids, lengths, real = batch(tokens, SENTENCES, model.max_length)
    outputs = theirs(ids, attention_mask=real.long())
    expected = outputs.get("prediction_logits", outputs.get("logits"))
    logits = model.eval().logits(model.features(ids, lengths)[:, :, -1])
    torch.testing.assert_close(logits[real], expected[real], atol=1e-5, rtol=0)
    assert figures["max_abs_difference"] < 1e-5 and not real.all()
    assert (model.output_embedding is None) == theirs.config.tie_word_embeddings
    written, difference = export.export("brought")
    assert difference < 1e-5
    again, info = CHECKPOINTS[name][1].from_pretrained(written, output_loading_info=True)
    assert type(theirs).__name__ in again.config.architectures and not any(info.values()), info
    assert again.config.tie_word_embeddings == theirs.config.tie_word_embeddings
    # an untied output's bias has two names there, and one of them is read by nobody
    unread = () if theirs.config.tie_word_embeddings else ("cls.predictions.bias", "predictions.bias")
    before, after = load_file(folder / "model.safetensors"), load_file(written / "model.safetensors")
    assert before.keys() == after.keys()
    assert [key for key, value in before.items() if not torch.equal(after[key], value) and key not in unread] == []


@pytest.mark.parametrize("name", ["bert", "roberta", "gpt2", "gpt_neox", "deberta_v3", "xlnet"])
def test_rows_of_an_embedding_that_no_id_has_are_left_out(given, name, capsys):
    """As the published DeBERTa v2 and T5 have them."""
    folder = given(name, vocab_size=640)
    figures = bring(folder)
    model, tokens = store.load(Path("data/models/brought"))
    assert figures["max_abs_difference"] < 1e-4 and figures["vocab_size"] == tokens.vocab_size < 640
    assert model.token_embedding.num_embeddings == tokens.vocab_size
    left = 640 - tokens.vocab_size
    assert f"left out: {left} rows of the embedding that no id of the tokenizer has" in capsys.readouterr().out
    assert json.loads(Path("data/models/brought/card.json").read_text())["rows_without_id"] == left


@pytest.mark.parametrize("name", ["bert", "gpt2", "roberta"])
def test_weights_of_before_safetensors_are_read(given, name):
    folder = given(name)
    weights = load_file(folder / "model.safetensors")
    bring(folder)
    expected = store.load(Path("data/models/brought"))[0].state_dict()
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    torch.save({"args": 1}, folder / "training_args.bin")
    assert bring(folder)["max_abs_difference"] < 1e-4
    found = store.load(Path("data/models/brought"))[0].state_dict()
    absent = store.about(Path("data/models/brought")).absent
    assert all(torch.equal(found[key], value) for key, value in expected.items() if key.partition(".")[0] not in absent)
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Path("harm")))
    with pytest.raises(SesameError, match=r"pytorch_model\.bin can't be read"):
        bring(folder)


@pytest.mark.parametrize("name", ["albert", "xlnet", "deberta_v3"])
def test_a_tokenizer_of_a_sentencepiece_file_alone_is_read(given, name):
    specials = {
        "albert": ["[CLS]", "[SEP]", "[MASK]"], "xlnet": ["<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"],
        "deberta_v3": ["[CLS]", "[SEP]"],
    }[name]  # fmt: skip
    folder = given(name, vocab_size=320)
    for file in (*folder.glob("tokenizer*"), *folder.glob("special*")):
        file.unlink()
    pads = {"pad_piece": "[PAD]" if name == "deberta_v3" else "<pad>", "unk_piece": "[UNK]" if name == "deberta_v3" else "<unk>"}
    ids = {"pad_id": -1, "unk_id": 0} if name == "xlnet" else {"pad_id": 0, "unk_id": 3 if name == "deberta_v3" else 1}
    if name == "deberta_v3":
        ids, specials = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3, "bos_piece": "[CLS]", "eos_piece": "[SEP]"}, []
    else:
        ids |= {"bos_id": -1, "eos_id": -1}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text(100).splitlines() + SENTENCES), model_prefix=str(folder / "spiece"), model_type="unigram",
        vocab_size=300, control_symbols=specials, minloglevel=2, hard_vocab_limit=False, **pads, **ids,
    )  # fmt: skip
    (folder / "spiece.vocab").unlink()
    file = folder / "spiece.model"
    if name == "deberta_v3":
        file = file.rename(folder / "spm.model")
    assert bring(folder)["max_abs_difference"] < 1e-4
    tokens, own = tokenizer.load(Path("data/models/brought")), sentencepiece.SentencePieceProcessor(model_file=str(file))
    said = "the old woman sees a red ball ."
    assert [tokens.tokenizer.id_to_token(i) for i in tokens.encode([said])[0]] == own.encode(said, out_type=str)


def test_capitals_that_a_tokenizer_never_reads_are_told(given, capsys):
    """A cased vocab.txt without a tokenizer_config.json is read in small letters."""
    folder = given("bert")
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in sorted(vocabulary, key=vocabulary.get)))
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (folder / file).unlink()
    bring(folder)
    capitals = [piece for piece in vocabulary if piece != piece.lower() and not piece.startswith("[")]
    said = capsys.readouterr().out
    expected = rf"small letters of every text, and {len(capitals)} of its pieces have capitals, as \S+, .*do_lower_case: false"
    assert re.search(expected, said)
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    bring(folder)
    assert "capitals" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_a_token_that_a_checkpoint_adds_is_one_piece_of_a_text(given, name):
    folder = given(name, vocab_size=640)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    theirs.add_special_tokens({"additional_special_tokens": ["<ent>", "</ent>"]})
    theirs.save_pretrained(folder)
    bring(folder)
    tokens = tokenizer.load(Path("data/models/brought"))
    [ids] = tokens.encode(["the <ent> dog </ent> sees [MASK] <mask> ."])
    assert [i for i in ids if i in theirs.convert_tokens_to_ids(["<ent>", "</ent>"])] == theirs.convert_tokens_to_ids(["<ent>", "</ent>"])
    assert theirs.mask_token_id not in ids and "<ent>" in tokens.decode(ids)


def test_the_first_letter_of_a_word_is_in_its_token(given):
    """RobBERT's tokenizer splits at blanks and adds one to each word, whose place `tokenizers` cuts off the word."""
    folder = given("roberta")
    file = folder / "tokenizer.json"
    fast = Fast.from_file(str(file))
    fast.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.ByteLevel(add_prefix_space=True)])
    fast.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=True)
    fast.save(str(file))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"tokenizer_class": "PreTrainedTokenizerFast"}))
    said = "My old friend paints a city"
    assert fast.encode("a b", add_special_tokens=False).offsets[-1] == (3, 3), "tokenizers still cuts it off"
    bring(folder)
    tokens = tokenizer.load(Path("data/models/brought"))
    [(ids, spans)] = tokens.encode_offsets([said])
    assert ids == fast.encode(said, add_special_tokens=False).ids
    covered = {i for span in spans for i in range(*span)}
    assert covered == {i for i, letter in enumerate(said) if letter != " "}
    assert all(" " not in said[first:last] for first, last in spans)


@torch.no_grad()
@pytest.mark.parametrize(("kind", "positions"), [("bpe", "learned"), ("byte_level_bpe", "learned"), ("bpe", "rotary")])
def test_pipelines_read_and_write_an_exported_model_as_we_do(project, kind, positions):
    """Nothing is put between a mask and what follows, a continuation keeps its first blank, and padding is on the
    left."""
    from components.text.tokenizer import __main__ as tokenizer_stage

    raw = tiny_params()
    raw["tokenizers"]["tiny"] = {"corpus": "tiny", "vocab_size": 400, "kind": kind}
    tokenizer_stage.train(params.check(raw), "tiny", Run(None))
    tokens = tokenizer.load(Path("data/tokenizers/tiny"))
    sizes = {"num_layers": 2, "hidden_size": 32, "num_heads": 4, "intermediate_size": 48, "max_length": 64}
    sizes["positions"] = positions
    for name, block in (("bert", EncoderArchitecture(name="encoder", **sizes)), ("gpt", DecoderArchitecture(name="decoder", **sizes))):
        torch.manual_seed(0)
        store.save(Path("data/models", name), store.build(block, tokens).state_dict(), block, tokens)
    folder, _ = export.export("bert")
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    [whole], [before] = tokens.encode(["The dog sees the river."]), tokens.encode(["The dog sees the"])
    end = tokens.encode(["The dog sees the river"])[0]
    assert whole[: len(end)] == end
    asked = theirs("The dog sees the [MASK].", add_special_tokens=False)["input_ids"]
    assert asked == [*before, 4, *whole[len(end) :]], "no blank before the full stop"
    assert theirs("[MASK] dog", add_special_tokens=False)["input_ids"] == [4, *tokens.encode(["dog"])[0]]

    folder, _ = export.export("gpt")
    theirs, model = transformers.AutoTokenizer.from_pretrained(folder), transformers.AutoModelForCausalLM.from_pretrained(folder)
    assert model.config.model_type == ("gpt_neox" if positions == "rotary" else "gpt2")
    assert theirs.padding_side == "left"
    prompts = ["a man is", "the old woman sees a red ball near the sea and", "my"]
    write = transformers.pipeline("text-generation", model=model, tokenizer=theirs)
    together = write(prompts, do_sample=False, max_new_tokens=6, batch_size=3)
    for prompt, [made] in zip(prompts, together, strict=True):
        [ids] = tokens.encode([prompt])
        out = model.generate(torch.tensor([[2, *ids]]), do_sample=False, max_new_tokens=6)[0].tolist()
        said = tokens.decode(out[1:]).strip()
        assert made["generated_text"].strip() == said or made["generated_text"].replace("[UNK]", "").split() == said.split()
        assert made["generated_text"].startswith(prompt) and (tokens.pieces[out[1 + len(ids)]][:1] == b" ") == (
            made["generated_text"][len(prompt)] == " ")  # fmt: skip


def test_old_names_half_precision_and_shards_are_read(given):
    folder = given("bert")
    weights = {
        key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value.bfloat16()
        for key, value in load_file(folder / "model.safetensors").items()
    }
    weights |= {
        "bert.embeddings.position_ids": torch.arange(66)[None],
        "cls.predictions.decoder.weight": weights["bert.embeddings.word_embeddings.weight"].clone(),
    }
    (folder / "model.safetensors").unlink()
    half = len(weights) // 2
    shards = {
        "model-00001-of-00002.safetensors": dict(list(weights.items())[:half]),
        "model-00002-of-00002.safetensors": dict(list(weights.items())[half:]),
    }
    for file, part in shards.items():
        save_file(part, folder / file, metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": {key: file for file, part in shards.items() for key in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert bring(folder)["max_abs_difference"] < 1e-4
    model, _ = store.load(Path("data/models/brought"))
    assert torch.equal(model.embedding_norm.weight, weights["bert.embeddings.LayerNorm.gamma"].float())


def test_an_old_gpt_neox_and_one_without_its_output_are_read(given, capsys):
    """Old files have constants beside the weights; a body alone has no untied output, which is said and not invented."""
    folder = given("gpt_neox")
    layers = [f"gpt_neox.layers.{i}.attention" for i in range(3)]
    constants = {"bias": torch.ones(1, 1, 64, 64), "masked_bias": torch.tensor(-1e9), "rotary_emb.inv_freq": torch.ones(4)}
    old = {f"{layer}.{name}": value.clone() for layer in layers for name, value in constants.items()}
    weights(lambda state: state.update(old))(folder)
    assert bring(folder)["max_abs_difference"] < 1e-5
    whole = store.load(Path("data/models/brought"))[0].state_dict()
    assert json.loads(Path("data/models/brought/card.json").read_text())["left_out"] == []
    weights(lambda state: state.pop("embed_out.weight"))(folder)
    assert bring(folder)["max_abs_difference"] < 1e-5
    assert "not in the checkpoint, random in every load: output_embedding" in capsys.readouterr().out
    body = store.load(Path("data/models/brought"))[0].state_dict()
    assert [key for key, value in body.items() if not torch.equal(value, whole[key])] == ["output_embedding.weight"]
    written, _ = export.export("brought")
    _, info = transformers.GPTNeoXModel.from_pretrained(written, output_loading_info=True)
    assert json.loads((written / "config.json").read_text())["architectures"] == ["GPTNeoXModel"] and not any(info.values())


def test_absent_heads_are_drawn_anew_and_broken_ones_refused(given):
    bring(given("roberta"))
    folder = Path("data/models/brought")
    assert store.about(folder).absent == ["pooler", "next_sentence"]
    loaded = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        loaded.append(store.load(folder)[0].state_dict())
    assert {key.partition(".")[0] for key in loaded[0] if not torch.equal(loaded[0][key], loaded[1][key])} == {"pooler", "next_sentence"}
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"absent": []}))
    with pytest.raises(SesameError, match="brought/model.safetensors can't be read .*Missing key"):
        store.load(folder)


@torch.no_grad()
@pytest.mark.parametrize("name", ["bert", "roberta", "xlm-roberta", "distilbert", "albert", "electra_generator", "roformer"])
def test_an_imported_model_fills_gaps_as_transformers_does(given, name):
    """The same ids, blanks beside the gap included, and the same likeliest token; the model's own word for a gap is read, too."""
    folder = given(name)
    bring(folder)
    filler, tokenizer = filling.load("brought", rounds=0), transformers.AutoTokenizer.from_pretrained(folder)
    theirs = CHECKPOINTS[name][1].from_pretrained(folder).eval()
    for given_text in ("the old [MASK] sees the river .", "[MASK] dogs like [MASK] .", "the [MASK]s"):
        marked = given_text.replace("[MASK]", tokenizer.mask_token)
        inputs = tokenizer(marked, return_tensors="pt")
        ids = filler.source(given_text)
        assert ids == filler.source(marked) == inputs.input_ids[0].tolist()
        outputs = theirs(**inputs)
        logits = outputs.get("prediction_logits", outputs.get("logits"))[0]
        logits[:, tokenizer.all_special_ids] = -torch.inf
        places = [i for i, token in enumerate(ids) if token == tokenizer.mask_token_id]
        first = max(places, key=lambda i: float(logits[i].log_softmax(0).max()))
        [filled] = filler.write([ids], Greedy(kind="greedy"))
        assert filled[first - len(filler.tokens.prefix)] == int(logits[first].argmax())
        assert len(filled) == len(ids) - 2 and not {*filled} & {*tokenizer.all_special_ids} - {tokenizer.unk_token_id}
    with pytest.raises(SesameError, match="which this model reads as a special token: leave it out"):
        filler.source(f"{tokenizer.pad_token} the [MASK]")
    with pytest.raises(SesameError, match=r"put a \[MASK\] into the text"):
        filler.source("the dog")


def test_a_model_without_a_mark_for_gaps_says_so(given):
    bring(given("gpt2"))
    with pytest.raises(SesameError, match=r"the text has a \[MASK\], and this model has no token for a gap: leave it out"):
        writing.load("brought").source("the [MASK] dog")


@pytest.mark.parametrize(("name", "prefix", "middle", "suffix"), [
    ("bert", ["[CLS]"], ["[SEP]"], ["[SEP]"]), ("roberta", ["<s>"], ["</s>", "</s>"], ["</s>"]),
    ("gpt2", [], ["<|endoftext|>"], ["<|endoftext|>"]), ("xlnet", [], ["<sep>"], ["<sep>", "<cls>"]),
])  # fmt: skip
def test_an_imported_tokenizer_gives_the_ids_of_transformers(given, name, prefix, middle, suffix):
    folder = given(name)
    bring(folder)
    tokens, theirs = tokenizer.load(Path("data/models/brought")), transformers.AutoTokenizer.from_pretrained(folder)
    assert [theirs.convert_ids_to_tokens(ids) for ids in (tokens.prefix, tokens.middle, tokens.suffix)] == [prefix, middle, suffix]
    texts = SENTENCES + ODD + text(20).splitlines()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoded = tokens.encode(texts)
    assert encoded == [theirs(one, add_special_tokens=False, split_special_tokens=True)["input_ids"] for one in texts]
    special = set(theirs.all_special_ids) - {theirs.unk_token_id}
    # a unigram model finds "<s>" among its pieces in whatever text, theirs and so ours
    assert name == "xlnet" or not special & {i for ids in encoded for i in ids}
    if name != "gpt2":
        a, b = tokens.encode(SENTENCES[:2])
        assert theirs(*SENTENCES[:2])["input_ids"] == [*tokens.prefix, *a, *tokens.middle, *b, *tokens.suffix]
    for one, (ids, offsets) in zip(SENTENCES, tokens.encode_offsets(SENTENCES), strict=True):
        assert len(ids) == len(offsets) and all(0 <= first <= end <= len(one) for first, end in offsets)
    english = SENTENCES[1]
    assert name == "xlnet" or "".join(english[first:end] for first, end in tokens.encode_offsets([english])[0][1]).replace(
        " ", ""
    ) == english.replace(" ", "")
    whole = [*tokens.prefix, *tokens.encode([english])[0], *tokens.suffix]
    assert tokens.decode(whole) == english and tokens.vocab_size == len(theirs)
    mask = theirs.mask_token_id
    assert mask is None or theirs.mask_token in tokens.decode([*whole, mask])


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_tokenizers_of_before_tokenizer_json_are_read(given, name):
    folder = given(name)
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    (folder / "tokenizer.json").unlink()
    if name == "bert":
        (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in sorted(model["vocab"], key=model["vocab"].get)))
    else:
        (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
        (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in model["merges"]))
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False} if name == "bert" else {}))
    bring(folder)
    tokens, theirs = tokenizer.load(Path("data/models/brought")), transformers.AutoTokenizer.from_pretrained(folder)
    assert tokens.encode(SENTENCES) == [theirs(one, add_special_tokens=False)["input_ids"] for one in SENTENCES]
    assert tokens.decode(tokens.encode(["Dogs Run"])[0]) == "Dogs Run"


def replace(folder: Path, **settings) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


def padded_by_another(folder: Path) -> None:
    """RoBERTa's positions begin after the id of padding, which config.json alone says: here it is that of a letter."""
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    vocab = content["model"]["vocab"]
    vocab["<pad>"], vocab["t"] = vocab["t"], vocab["<pad>"]
    for token in content["added_tokens"]:
        token["id"] = vocab[token["content"]]
    path.write_text(json.dumps(content))


def weights(change):
    def apply(folder: Path) -> None:
        state = load_file(folder / "model.safetensors")
        change(state)
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})

    return apply


def pickled(change):
    """A change of the weights, saved as before safetensors."""

    def spoil(folder: Path) -> None:
        state = load_file(folder / "model.safetensors")
        (folder / "model.safetensors").unlink()
        torch.save(change(state), folder / "pytorch_model.bin")

    return spoil


ROPE = {"partial_rotary_factor": 1.0, "rope_theta": 10_000, "rope_type": "default"}
LAYER = "bert.encoder.layer.1.intermediate.dense.weight"


@pytest.mark.parametrize(("name", "spoil", "said"), [
    ("bert", lambda f: replace(f, intermediate_size=64),
     r"encoder\.layer\.0\.intermediate\.dense\.weight is \(48, 32\) in the weights, but \(64, 32\) by config\.json"),
    ("gpt2", lambda f: replace(f, n_inner=64), r"h\.0\.mlp\.c_fc\.weight is \(32, 48\) in the weights, but \(32, 64\) by config\.json"),
    ("roberta", lambda f: replace(f, max_position_embeddings=80),
     r"position_embeddings\.weight is \(66, 32\) in the weights, but \(80, 32\)"),
    ("bert", lambda f: replace(f, num_hidden_layers=2),
     r"encoder\.layer\.2\.\S+ is in the weights, but not in the model that config\.json describes"),
    ("bert", lambda f: replace(f, num_hidden_layers=4), r"encoder\.layer\.3\.attention\.self\.query\.weight is missing in the weights"),
    ("bert", lambda f: replace(f, num_attention_heads=5), "config.json: .*(hidden.size|divisible|multiple).*"),
    ("bert", lambda f: replace(f, hidden_act="relu"),
     r"config\.json: hidden_act: 'relu' is not supported \(there are: gelu, gelu_new, gelu_pytorch_tanh\)"),
    ("bert", lambda f: replace(f, position_embedding_type="relative_key"),
     r"config\.json: position_embedding_type: 'relative_key' is not supported"),
    ("deberta_v3", lambda f: replace(f, tie_word_embeddings=False),
     r"config\.json: tie_word_embeddings: False is not supported"),
    ("gpt_neox", lambda f: replace(f, use_parallel_residual=True),
     r"config\.json: use_parallel_residual: True is not supported, only False"),
    ("gpt_neox", lambda f: replace(f, rope_parameters=ROPE | {"partial_rotary_factor": 0.25}),
     r"config\.json: rotary_pct: 0\.25 is not supported, only 1\.0"),
    ("gpt_neox", lambda f: replace(f, rope_parameters=ROPE | {"rope_theta": 500_000}),
     r"config\.json: rotary_emb_base: 500000 is not supported, only 10000"),
    ("gpt_neox", lambda f: replace(f, rope_parameters=ROPE | {"rope_type": "linear", "factor": 2.0}),
     r"config\.json: rope_type: 'linear' is not supported, only 'default'"),
    ("gpt_neox", lambda f: replace(f, attention_bias=False),
     r"config\.json: attention_bias: False is not supported, only True"),
    ("gpt_neox", lambda f: replace(f, hidden_size=40, num_attention_heads=4),
     r"embed_in\.weight is \(\d+, 32\) in the weights, but \(\d+, 40\) by config\.json"),
    ("gpt_neox", lambda f: replace(f, tie_word_embeddings=True),
     r"embed_out\.weight in the weights is not the same as gpt_neox\.embed_in\.weight, and config\.json has no untied"),
    ("roformer", lambda f: replace(f, rotary_value=True),
     r"config\.json: rotary_value: True is not supported, only False"),
    ("roformer", lambda f: replace(f, hidden_size=40, embedding_size=40),
     r"\.weight is \(300, 32\) in the weights, but \(300, 40\) by"),
    ("bert", lambda f: replace(f, is_decoder=True), r"config\.json: is_decoder: True is not supported"),
    ("bert", lambda f: replace(f, attention_probs_dropout_prob=0.3),
     r"config\.json: attention_probs_dropout_prob: 0\.3 is not supported where hidden_dropout_prob is 0\.1"),
    ("gpt2", lambda f: replace(f, scale_attn_by_inverse_layer_idx=True),
     r"config\.json: scale_attn_by_inverse_layer_idx: True is not supported"),
    ("bert", lambda f: replace(f, model_type="longformer"),
     r"config\.json: model_type: 'longformer' is not supported for family encoder \(there are: bert, roberta, .*roformer\)"),
    ("albert", lambda f: replace(f, num_hidden_groups=3), r"config\.json: num_hidden_groups: 3 is not supported, only 1"),
    ("bert", lambda f: replace(f, model_type=["bert"]), r"config\.json: model_type: \['bert'\] is not supported"),
    ("bert", lambda f: replace(f, vocab_size=None), r"config\.json: .*vocab_size"),
    ("bert", lambda f: (f / "config.json").write_text("[]"), r"config\.json: an object expected, list found"),
    ("bert", lambda f: replace(f, hidden_size="wide"), r"config\.json: .*hidden_size"),
    ("bert", lambda f: (f / "config.json").write_text("{"), r"config\.json.*not valid JSON"),
    ("bert", lambda f: (f / "config.json").unlink(), r"the source has no config\.json; .*model\.safetensors"),
    ("bert", lambda f: (f / "model.safetensors").unlink(), r"the source has no \*\.safetensors or \S+\.bin; .*config\.json"),
    ("bert", lambda f: (f / "tokenizer.json").unlink(), r"the source has no tokenizer\.json or vocab\.txt or vocab\.json or \*\.model"),
    ("bert", lambda f: (f / "tokenizer.json").write_text("[]"), "the tokenizer can't be read: "),
    ("bert", lambda f: (f / "model.safetensors").write_bytes(b"\x10" * 99), r"model\.safetensors can't be read"),
    ("bert", lambda f: wordpiece(f, 350), r"the tokenizer has 350 ids, but config\.json says vocab_size 300: they don't belong together"),
    ("gpt2", lambda f: gpt_bpe(f, 450), r"the tokenizer has \d+ ids, but config\.json says vocab_size \d+"),
    ("bert", weights(lambda state: state.pop(LAYER)), r"encoder\.layer\.1\.intermediate\.dense\.weight is missing in the weights"),
    ("bert", weights(lambda state: state.pop("bert.pooler.dense.bias")),
     r"pooler\.dense\.weight is in the weights, but not the rest of its module"),
    ("bert", weights(lambda state: state.update({"cls.predictions.decoder.weight": torch.zeros(300, 32)})),
     r"cls\.predictions\.decoder\.weight in the weights is not the same as bert\.embeddings\.word_embeddings\.weight, and config"),
    ("gpt2", weights(lambda state: state.update({"lm_head.weight": torch.zeros(400, 32)})),
     r"lm_head\.weight in the weights is not the same as transformer\.wte\.weight"),
    ("bert", weights(lambda state: state.update({LAYER: torch.full((48, 32), torch.nan)})),
     r"model\.safetensors: bert\.encoder\.layer\.1\.intermediate\.dense\.weight has values that are not finite"),
    ("bert", weights(lambda state: state.update({"bert.pooler.dense.bias": torch.full((32,), torch.inf)})),
     r"model\.safetensors: bert\.pooler\.dense\.bias has values that are not finite"),
    ("bert", pickled(lambda state: [1, 2]), r"pytorch_model\.bin: weights by their names expected, list found"),
    ("bert", pickled(lambda state: {"state_dict": state, "epoch": 3}), "expected, found a block 'state_dict' of them; save what is in it"),
    ("bert", pickled(lambda state: state | {"epoch": 3}), "expected, found 'epoch': int"),
    ("bert", pickled(lambda state: {name: value.to(torch.complex64) for name, value in state.items()}), "has complex numbers; weights are"),
    ("bert", pickled(lambda state: Path("harm")), r"pytorch_model\.bin can't be read: it holds more than tensors, which is never loaded"),
    ("bert", lambda f: (f / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
     r"model\.safetensors can't be read: it is Git LFS's pointer to the file; bring the file itself"),
    ("bert", lambda f: replace(f, num_hidden_layers=10**7), r"num_hidden_layers: Input should be less than or equal to 10000"),
    ("bert", lambda f: replace(f, pad_token_id=10**6), r"transformers can't load it: \w+: "),
    ("roberta", padded_by_another, r"^checkpoints.brought: transformers computes .*; config.json says pad_token_id 1, the tokenizer \d+"),
])  # fmt: skip
def test_a_bad_checkpoint_is_one_line_and_leaves_nothing(given, name, spoil, said):
    folder = given(name)
    spoil(folder)
    with pytest.raises(SesameError) as caught:
        bring(folder)
    assert re.search(said, str(caught.value)) and "\n" not in str(caught.value), caught.value
    assert not Path("data/models").exists() or not list(Path("data/models").iterdir())


def test_rounding_is_no_difference(given, monkeypatch):
    monkeypatch.setattr(parity, "TOLERANCE", 1e-9)
    assert 1e-9 < bring(given("bert"))["max_abs_difference"] < 1e-4


def test_files_of_one_name_are_refused(given):
    folder = given("bert")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text("{}")
    with pytest.raises(SesameError, match=r"two files of the source are called config\.json, the second is .*; name the files one by one"):
        bring(folder, pattern="**")


SHARING = {"embedding_size": 16, "shared_layers": "all", "num_layers": 3, "activation": "gelu_tanh"}


ROTARY = {"positions": "rotary", "dropout": 0.0}


@pytest.fixture(params=["encoder", "decoder", "albert", "rotary encoder", "rotary decoder"])
def ours(project, tokens, request):
    """A saved model of ours with random weights."""
    kind, name = (DecoderArchitecture, "decoder") if "decoder" in request.param else (EncoderArchitecture, "encoder")
    sizes = {"num_layers": 2, "hidden_size": 32, "num_heads": 2, "intermediate_size": 48, "max_length": 64}
    others = {"albert": SHARING, "rotary encoder": ROTARY, "rotary decoder": ROTARY}.get(request.param, {})
    block = kind(name=name, **sizes | others)
    torch.manual_seed(0)
    model = store.build(block, tokens)
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    store.save(Path("data/models/ours"), model.state_dict(), block, tokens)
    return model.eval()


@torch.no_grad()
def test_an_exported_model_is_read_whole_and_computes_the_same(ours, tokens):
    folder, difference = export.export("ours")
    assert folder == Path("data/export/ours") and difference < 1e-4
    encoder, config = type(ours).__name__ == "Encoder", json.loads((folder / "config.json").read_text())
    pooled_there = encoder and config["model_type"] != "roformer"
    loader = transformers.AutoModelForPreTraining if pooled_there else getattr(transformers, *config["architectures"])
    theirs, info = loader.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    ids, lengths, real = batch(tokens, SENTENCES, 64)
    segments = (torch.arange(ids.shape[1]) > 5).long().expand_as(ids)
    expected = theirs.eval()(ids, attention_mask=real.long(), **({"token_type_ids": segments} if encoder else {}))
    last = ours.features(ids, lengths, segments)[:, :, -1]
    logits = expected.prediction_logits if pooled_there else expected.logits
    torch.testing.assert_close(ours.logits(last)[real], logits[real], atol=1e-5, rtol=0)
    if pooled_there:
        answers = expected.get("seq_relationship_logits", expected.get("sop_logits"))
        torch.testing.assert_close(ours.next_sentence(ours.pool(last, lengths)), answers, atol=1e-4, rtol=0)
    body = transformers.AutoModel.from_pretrained(folder).eval()
    types = {"token_type_ids": segments} if encoder else {}
    hidden = body(ids, attention_mask=real.long(), **types).last_hidden_state
    torch.testing.assert_close(hidden[real], last[real], atol=1e-4, rtol=0)
    if pooled_there:
        assert isinstance(body, transformers.BertModel | transformers.AlbertModel)
        pooled = body(ids, attention_mask=real.long(), token_type_ids=segments).pooler_output
        torch.testing.assert_close(pooled, ours.pool(last, lengths), atol=1e-4, rtol=0)
        masked_lm = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
        filled = masked_lm(ids, attention_mask=real.long(), token_type_ids=segments).logits
        torch.testing.assert_close(filled[real], logits[real], atol=1e-5, rtol=0)
    bring(folder)  # and back
    absent = store.about(Path("data/models/brought")).absent
    assert absent == (["pooler", "next_sentence"] if encoder and not pooled_there else [])
    for key, value in store.load(Path("data/models/brought"))[0].state_dict().items():
        assert torch.equal(value, ours.state_dict()[key]) or key.partition(".")[0] in absent, key


def test_an_export_says_what_dropout_and_rotation_are(ours):
    """A dropout of 0 is no default; older versions read a GPT-NeoX's rotation under other names."""
    folder, _ = export.export("ours")
    config, reread = json.loads((folder / "config.json").read_text()), transformers.AutoConfig.from_pretrained(folder)
    kind = config["model_type"]
    names = hub("decoder" if kind.startswith("gpt") else "encoder").LAYOUTS[kind].settings["dropout"].split()
    expected = 0.0 if kind in ("roformer", "gpt_neox") else 0.1
    assert [(config[name], getattr(reread, name)) for name in names] == [(expected, expected)] * len(names)
    assert reread.tie_word_embeddings is True
    if kind == "gpt_neox":
        assert reread.rope_parameters == ROPE and (config["rotary_pct"], config["rotary_emb_base"]) == (1.0, 10_000)
        assert (config["use_parallel_residual"], reread.attention_bias) == (False, True)


@torch.no_grad()
def test_an_exported_xlnet_reads_the_same(project, tokens):
    sizes = {"num_layers": 3, "hidden_size": 32, "num_heads": 2, "intermediate_size": 48, "max_length": 64}
    torch.manual_seed(0)
    block = XLNetArchitecture(name="xlnet", **sizes)
    model = store.build(block, tokens).eval()
    store.save(Path("data/models/ours"), model.state_dict(), block, tokens, absent=["pooler"])
    folder, difference = export.export("ours")
    theirs, info = transformers.XLNetLMHeadModel.from_pretrained(folder, output_loading_info=True)
    assert difference < 1e-4 and not any(info.values()), info
    assert transformers.AutoTokenizer.from_pretrained(folder).padding_side == "left", "theirs pool the last place"
    ids, lengths, real = batch(tokens, SENTENCES, 64)
    segments = (torch.arange(ids.shape[1]) > 5).long().expand_as(ids)
    logits = theirs.eval()(ids, attention_mask=real.long(), token_type_ids=segments).logits
    torch.testing.assert_close(logits[real], model.logits(model.top(ids, lengths, segments))[real], atol=1e-4, rtol=0)
    # holes: theirs by a permutation in which nothing sees them, and a target for each
    holes = [2, 4]
    unseen, targets = torch.zeros(len(ids), ids.shape[1], ids.shape[1]), torch.zeros(len(ids), len(holes), ids.shape[1])
    unseen[:, :, holes], targets[:, range(len(holes)), holes] = 1, 1
    logits = theirs(ids, attention_mask=real.long(), perm_mask=unseen, target_mapping=targets).logits
    masked = ids.clone()
    masked[:, holes] = MASK
    hidden = model_holes.states(model, masked, lengths, torch.tensor([holes]).expand(len(ids), -1), MASK)
    torch.testing.assert_close(logits, model.logits(hidden), atol=1e-4, rtol=0)
    bring(folder)
    brought = store.load(Path("data/models/brought"))[0].state_dict()
    assert all(torch.equal(brought[key], value) for key, value in model.state_dict().items() if not key.startswith("pooler"))


@torch.no_grad()
def test_an_exported_deberta_is_read_without_what_pre_training_alone_uses(project, tokens, capsys):
    sizes = {"num_layers": 3, "hidden_size": 32, "num_heads": 2, "intermediate_size": 48, "max_length": 64, "position_buckets": 8}
    block = DebertaArchitecture(name="deberta", shared_projections=True, norm_positions=True, **sizes)
    torch.manual_seed(0)
    model = store.build(block, tokens).eval()
    store.save(Path("data/models/ours"), model.state_dict(), block, tokens)
    folder, difference = export.export("ours")
    assert difference < 1e-4 and "left out, since transformers' deberta-v2 has no such module: head_bias" in capsys.readouterr().out
    theirs, info = transformers.AutoModel.from_pretrained(folder, output_loading_info=True)
    assert isinstance(theirs, transformers.DebertaV2Model) and not any(info.values()), info
    ids, lengths, real = batch(tokens, SENTENCES, 64)
    hidden = theirs.eval()(ids, attention_mask=real.long()).last_hidden_state
    torch.testing.assert_close(hidden[real], model.top(ids, lengths)[real], atol=1e-4, rtol=0)
    bring(folder)
    brought = store.load(Path("data/models/brought"))[0].eval()
    assert torch.equal(brought.top(ids, lengths), model.top(ids, lengths)) and brought.position_embedding is None
    first = block.model_copy(update={"shared_projections": False})
    store.save(Path("data/models/first"), store.build(first, tokens).state_dict(), first, tokens)
    with pytest.raises(SesameError, match="architecture.shared_projections: False has no counterpart"):
        export.export("first")


def test_an_exported_tokenizer_gives_our_ids(ours, tokens):
    folder, _ = export.export("ours")
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    texts = SENTENCES + ODD + text(50).splitlines()
    encoded = tokens.encode(texts)
    assert [theirs(one, add_special_tokens=False, split_special_tokens=True)["input_ids"] for one in texts] == encoded
    assert [theirs(one, add_special_tokens=False)["input_ids"] for one in SENTENCES] == encoded[: len(SENTENCES)]
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert theirs.convert_ids_to_tokens(range(5)) == specials == list(theirs.decode([i]) for i in range(5))
    assert len(theirs) == tokens.vocab_size and theirs.model_max_length == 64
    a, b = tokens.encode(SENTENCES[:2])
    pair, single = theirs(*SENTENCES[:2]), theirs(SENTENCES[0])
    if type(ours).__name__ == "Encoder":
        assert pair["input_ids"] == [2, *a, 3, *b, 3] and pair["token_type_ids"] == [0] * (len(a) + 2) + [1] * (len(b) + 1)
        assert single["input_ids"] == [2, *a, 3]
    else:
        assert pair["input_ids"] == [2, *a, 3, *b] and single["input_ids"] == [2, *a] and "token_type_ids" not in pair
    before, after = tokens.encode(["the dog", "the river"])
    assert theirs("the dog [MASK] the river", add_special_tokens=False)["input_ids"] == [*before, 4, *after]
    for one, ids in zip(texts, encoded, strict=True):
        if "[" not in one:
            blank = " " if ids and type(ours).__name__ == "Decoder" else ""  # which a continuation needs
            assert theirs.decode(ids) == blank + tokens.decode(ids), one
    padded = theirs(SENTENCES, padding=True, truncation=True, return_tensors="pt")
    assert padded["input_ids"].shape[1] <= 64 and padded["attention_mask"].sum(1).min() < padded["input_ids"].shape[1]


@pytest.mark.parametrize("settings", [
    {"lowercase": False}, {"byte_fallback": False, "lowercase": True}, {"kind": "characters", "lowercase": True},
    {"kind": "bytes", "vocab_size": None},
], ids=lambda settings: " ".join(map(str, settings.values())))  # fmt: skip
def test_every_kind_of_our_tokenizers_is_converted(project, settings):
    from components.text.tokenizer import __main__ as tokenizer_stage

    raw = tiny_params()
    raw["tokenizers"]["tiny"] = {"corpus": "tiny", "vocab_size": 320, **settings}
    tokenizer_stage.train(params.check(raw), "tiny", Run(None))
    tokens = tokenizer.load(Path("data/tokenizers/tiny"))
    fast = pieces.convert(tokens.path)
    fast.encode_special_tokens = True
    texts = SENTENCES + ODD + text(50).splitlines() + [f"a{chr(i)}b" for i in range(0x20, 0x3000) if i != 0x344]
    assert [fast.encode(one).ids for one in texts] == tokens.encode(texts)


def test_a_unigram_tokenizer_reads_and_is_not_written(project):
    from components.text.tokenizer import __main__ as tokenizer_stage

    raw = tiny_params()
    raw["tokenizers"]["tiny"] = {"corpus": "tiny", "vocab_size": 320, "kind": "unigram"}
    figures = tokenizer_stage.train(params.check(raw), "tiny", Run(None))
    tokens = tokenizer.load(Path("data/tokenizers/tiny"))
    assert figures["vocab_size"] == 320 and tokens.decode(tokens.encode(["the dog sees 東京 ."])[0]) == "the dog sees 東京 ."
    with pytest.raises(SesameError, match="a unigram tokenizer can't be exported"):
        pieces.convert(tokens.path)


def test_the_kinds_of_debertas_attention_stand_in_any_order():
    for order in ("p2c|c2p", "c2p|p2c", ["c2p", "p2c"], ["p2c", "c2p"]):
        assert deberta.sort_attention({"pos_att_type": order})["pos_att_type"] == ["p2c", "c2p"]
    assert deberta.sort_attention({"pos_att_type": "c2p"})["pos_att_type"] == ["c2p"], "which is another model, and refused"


def test_an_export_has_a_card_with_its_licence(given, project, capsys):
    """That of the weights from elsewhere, or of the text that it was trained on."""
    bring(given("bert"))
    weights = {"family": "encoder", "licence": "MIT", "source": {"kind": "files", "paths": ["x"]}}
    raw = tiny_params(checkpoints={"brought": weights})
    raw["corpora"]["base"]["licence"], raw["tasks"]["same"]["licence"] = "CC BY-SA 4.0", "CC0"
    YAML().dump(raw, project / "params.yaml")
    folder, _ = export.export("brought")
    card = (folder / "README.md").read_text()
    assert card.startswith('---\nlibrary_name: transformers\nlicense: other\nlicense_name: "MIT"\n---\n# brought\n')
    assert "`BertForPreTraining`" in card and "1. by imported" in card
    Path("data/models/brought").rename("data/models/bert")
    config = Path("data/models/bert/config.json")
    lineage = [{"by": "pretrained", "objective": "mlm", "tokens": 1000, "flops": 5}]
    config.write_text(json.dumps(json.loads(config.read_text()) | {"lineage": lineage}))
    folder, _ = export.export("bert")
    card = (folder / "README.md").read_text()
    assert "CC BY-SA 4.0, CC0" in card and "1. by pretrained objective mlm tokens 1,000 flops 5" in card
    # params.yaml names the texts of the model only as long as it is the one that the model was made by
    entry = registry.entry(params.load(), "pretrain", "bert")
    edited = entry.settings | {"encoding": "another"}
    for ran_with, licence in ((entry.settings, "CC BY-SA 4.0, CC0"), (edited, "not stated")):
        storage.write_json(storage.metrics_path("pretrain", "bert"), {"settings": ran_with})
        folder, _ = export.export("bert", Path("data/export", licence))
        assert f"texts it was made of: {licence}." in (folder / "README.md").read_text()
    assert "states no licence: pretrain@bert ran with other params than params.yaml has now" in capsys.readouterr().out


@pytest.mark.parametrize("by", [{"name": "tuned"}, {"name": "multitask", "tasks": ["same", "other"]}])
def test_a_licence_of_each_task_that_a_model_was_tuned_on(project, by):
    raw = tiny_params()
    tasks, several = raw["tasks"], by["name"] == "multitask"
    tasks["other"] = tasks["same"] | {"licence": "CC BY-NC"}
    raw["corpora"]["base"]["licence"], tasks["same"]["licence"] = "MIT", "CC0"
    on, by = "tasks" if several else "tasks/other", by | {"recipe": raw["finetune"]["recipes"]["gpt"]}
    raw["derived"] = {
        "adapted": {"start": "gpt", "on": on, "by": by},
        "smaller": {"start": "adapted", "on": "models/adapted", "by": {"name": "sparsified", "sparsity": 0.5}},
    }
    raw["mixes"]["tiny"]["tasks"] = []
    YAML().dump(raw, project / "params.yaml")
    assert licences_of("smaller") == ["MIT", *(["CC0"] if several else []), "CC BY-NC"]
    assert licences_of("gpt") == ["MIT"]


def test_the_command(ours):
    done = CliRunner().invoke(cli.app, ["export", "ours", "--out", "elsewhere/new"])
    assert done.exit_code == 0 and re.search(r"^elsewhere/new: .*largest difference \S+e-\d+", done.output, re.MULTILINE)
    rotary_encoder = ours.positions.kind == "rotary" and type(ours).__name__ == "Encoder"
    without = "left out, since transformers' roformer has no such module: next_sentence, pooler"
    assert (without in done.output) == rotary_encoder
    assert transformers.AutoModel.from_pretrained("elsewhere/new").config.hidden_size == 32
    done = CliRunner().invoke(cli.app, ["export", "nobody"])
    assert done.exit_code and "no model there" in str(done.exception) + done.output and not Path("data/export").exists()


def test_what_cannot_be_exported_is_one_line(project, tokens):
    block = BiLMArchitecture(name="bilm", hidden_size=16, projection_size=8)
    store.save(Path("data/models/elmo"), store.build(block, tokens).state_dict(), block, tokens)
    with pytest.raises(SesameError, match="elmo is a bilm, which transformers does not have"):
        export.export("elmo")
    with pytest.raises(SesameError, match="data/models/nobody: no model there"):
        export.export("nobody")
    sizes = {"num_layers": 2, "hidden_size": 32, "num_heads": 2, "intermediate_size": 48, "max_length": 16}
    rotary = sizes | {"positions": "rotary"}
    for block, said in (
        (EncoderArchitecture(name="encoder", **rotary, norm_first=True), "norm_first: True has no counterpart in .* roformer"),
        (EncoderArchitecture(name="encoder", **rotary, embedding_size=32), "embedding_size: 32 has no counterpart"),
        (EncoderArchitecture(name="encoder", **sizes, positions="alibi"), "positions: alibi has no counterpart in .* bert"),
        (DecoderArchitecture(name="decoder", **rotary, biases=False), "biases: False has no counterpart in .* gpt_neox"),
        (DecoderArchitecture(name="decoder", **rotary, activation="swiglu"), "activation: swiglu is not written"),
    ):
        store.save(Path("data/models/other"), store.build(block, tokens).state_dict(), block, tokens)
        with pytest.raises(SesameError, match=f"architecture.{said}"):
            export.export("other")
    with pytest.raises(SesameError, match="data/models is not empty"):
        block = DecoderArchitecture(name="decoder", num_layers=1, hidden_size=16, num_heads=2, intermediate_size=16, max_length=16)
        store.save(Path("data/models/gpt"), store.build(block, tokens).state_dict(), block, tokens)
        export.export("gpt", Path("data/models"))
    with pytest.raises(SesameError, match="raw/text.txt: File exists; nothing can be written there"):
        export.export("gpt", Path("raw/text.txt/new"))
    assert not Path("data/export").exists()


def test_an_imported_model_is_exported(given):
    """A RoBERTa goes out as the BERT of one segment type that computes the same; heads that never came are not invented."""
    folder = given("roberta")
    bring(folder)
    written, difference = export.export("brought")
    assert difference < 1e-4
    config = json.loads((written / "config.json").read_text())
    assert (config["model_type"], config["type_vocab_size"], config["max_position_embeddings"]) == ("bert", 1, 64)
    assert config["architectures"] == ["BertForMaskedLM"]
    assert not [key for key in load_file(written / "model.safetensors") if "pooler" in key]


def test_the_yardstick_of_params_yaml(project, monkeypatch):
    """MiniLM, 83 MB of the package index: its numbers are those of transformers."""
    raw = params.check(tiny_params(checkpoints=YAML(typ="safe").load((ROOT / "params.yaml").read_text())["checkpoints"]))
    (ROOT / ".sesame/downloads").mkdir(parents=True, exist_ok=True)
    (project / ".sesame").mkdir(exist_ok=True)
    (project / ".sesame/downloads").symlink_to(ROOT / ".sesame/downloads")
    monkeypatch.setattr(download, "ATTEMPTS", 1)
    try:
        list(sources.open_files(raw.checkpoints["minilm"].source))
    except SesameError as error:
        pytest.skip(f"needs the file: {error}")
    assert stage.bring(raw, "minilm", Run(None))["max_abs_difference"] < 1e-4
    model, tokens = store.load(Path("data/models/minilm"))
    assert set(store.about(Path("data/models/minilm")).absent) == {"head_transform", "head_bias", "next_sentence"}
    folder = project / "given"
    folder.mkdir()
    stage.fetch(raw.checkpoints["minilm"].source, folder)
    texts, bert = text(10).splitlines() + SENTENCES + ODD, hub("encoder").LAYOUTS["bert"]
    absent = store.about(Path("data/models/minilm")).absent
    assert parity.check(folder, model, bert, tokens, absent, texts) < 1e-4
