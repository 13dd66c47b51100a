"""The encoder-decoder: the numbers of `transformers`' T5, BART and Marian from the same weights, what a task reads of it, bad settings."""

import json
from pathlib import Path

import pytest
import torch
import transformers
from pydantic import TypeAdapter, ValidationError
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy

from components import params
from components.core.errors import SesameError
from components.core.tracking import Run
from components.derive.checkpoints import __main__ as stage
from components.derive.checkpoints import export
from components.generate import writing
from components.models import store
from components.models.encoder_decoder import hub
from components.params import Beam, Greedy, Sample
from components.text import tokenizer
from tests.conftest import text, tiny_params
from tests.models.test_transformers import SENTENCES, batch, roberta_bpe, unigram

T5 = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4}
BART = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 64,
}  # fmt: skip
THEIRS = {
    "t5": (transformers.T5ForConditionalGeneration, transformers.T5Config, T5),
    "t5_1.1": (
        transformers.T5ForConditionalGeneration, transformers.T5Config,
        T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "d_kv": 6},
    ),
    "mt5": (
        transformers.MT5ForConditionalGeneration, transformers.MT5Config,
        T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    ),
    "bart": (transformers.BartForConditionalGeneration, transformers.BartConfig, BART),
    "marian": (
        transformers.MarianMTModel, transformers.MarianConfig,
        BART | {"activation_function": "swish", "scale_embedding": True, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1},
    ),
}  # fmt: skip


def given(folder: Path, name: str, more: int = 0) -> Path:
    """A checkpoint of `transformers` with random weights far from those of a start."""
    folder.mkdir(parents=True)
    size = (unigram if "t5" in name else roberta_bpe)(folder)
    model_class, config_class, sizes = THEIRS[name]
    torch.manual_seed(0)
    model = model_class(config_class(vocab_size=size + more, **sizes))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 1.0 if parameter.ndim == 1 and parameter.std() == 0 and parameter.mean() == 1 else 0.0, 0.1)
    if not sizes.get("tie_word_embeddings", True):
        model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight) / 10)
    if hasattr(model, "final_logits_bias"):
        torch.nn.init.normal_(model.final_logits_bias)
    model.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("name", THEIRS)
def test_rows_of_an_embedding_that_no_id_has_are_left_out(project, name):
    folder = given(project / "given" / name, name, 28)
    block = {"family": "encoder_decoder", "licence": "none", "source": {"kind": "files", "paths": [f"{folder}/*"]}}
    assert stage.bring(params.check(tiny_params(checkpoints={"brought": block})), "brought", Run(None))["max_abs_difference"] < 1e-4
    model, tokens = store.load(Path("data/models/brought"))
    assert model.token_embedding.num_embeddings == tokens.vocab_size
    _, difference = export.export("brought")
    assert difference < 1e-4


@pytest.mark.parametrize("name", ["t5_1.1", "mt5"])
def test_an_output_that_is_the_embedding_comes_in_and_goes_out(project, name):
    """As `transformers` saves it where both are one tensor: the second name is not in the file."""
    folder = given(project / "given" / name, name)
    model = THEIRS[name][0].from_pretrained(folder)
    model.lm_head.weight = model.shared.weight
    model.save_pretrained(folder)
    assert "lm_head.weight" not in load_file(folder / "model.safetensors")
    architecture = hub.LAYOUTS[model.config.model_type].architecture(model.config.to_dict())
    weights = hub.from_t5(load_file(folder / "model.safetensors"), architecture)
    assert torch.equal(weights["lm_head.weight"], model.shared.weight)
    save_file(weights, project / "ours.safetensors")


@pytest.mark.parametrize(("name", "prefix"), [("t5", ""), ("bart", "model.")])
def test_the_embedding_may_have_the_name_of_a_stack_alone(project, name, prefix):
    """As converters of T5X write it, or all names, as files of before safetensors; a file without any is one line."""
    folder = given(project / "given" / name, name)
    file, block = folder / "model.safetensors", {"family": "encoder_decoder", "licence": "none", "source": {"kind": "files"}}
    block["source"]["paths"] = [f"{folder}/*"]
    weights = load_file(file)
    shared = weights.pop(f"{prefix}shared.weight")
    weights = {key: value for key, value in weights.items() if "embed_tokens" not in key and key != "lm_head.weight"}
    of_stacks = [f"{prefix}{stack}.embed_tokens.weight" for stack in ("decoder", "encoder")]
    for names in (of_stacks[:1], [f"{prefix}shared.weight", *of_stacks]):
        save_file(weights | {key: shared.clone() for key in names}, file, {"format": "pt"})
        assert stage.bring(params.check(tiny_params(checkpoints={"brought": block})), "brought", Run(None))["max_abs_difference"] < 1e-4
    save_file(weights, file, {"format": "pt"})
    with pytest.raises(SesameError, match="shared.weight is missing in the weights"):
        stage.bring(params.check(tiny_params(checkpoints={"brought": block})), "brought", Run(None))


@torch.no_grad()
@pytest.mark.parametrize("name", THEIRS)
def test_an_imported_checkpoint_computes_what_transformers_computes(project, name):
    """Every layer of both stacks, logits and the loss of a target; and what is exported again is the same model."""
    folder = given(project / "given" / name, name)
    block = {"family": "encoder_decoder", "licence": "none", "source": {"kind": "files", "paths": [f"{folder}/*"]}}
    assert stage.bring(params.check(tiny_params(checkpoints={"brought": block})), "brought", Run(None))["max_abs_difference"] < 1e-4
    model, tokens = store.load(Path("data/models/brought"))
    model.eval()
    theirs = THEIRS[name][0].from_pretrained(folder).eval()
    ids, lengths, real = batch(tokens, SENTENCES, 64)
    targets, target_lengths, target_real = batch(tokens, SENTENCES[::-1], 24)
    labels = torch.where(target_real, targets, -100)
    start = theirs.config.decoder_start_token_id if "t5" not in name else 0
    assert model.start == start and model.num_layers == 2
    read = torch.cat([torch.full_like(targets[:, :1], start), targets[:, :-1]], 1)
    expected = theirs(
        input_ids=ids, attention_mask=real.long(), decoder_input_ids=read, labels=labels, output_hidden_states=True
    )  # fmt: skip

    for ours, other in zip(model.layers(ids, lengths), expected.encoder_hidden_states, strict=True):
        torch.testing.assert_close(ours[real], other[real], atol=1e-4, rtol=0)
    decoded = model.decode(read, model.encode(ids, lengths)[-1], real[:, None, None])
    for ours, other in zip(decoded[:-1], expected.decoder_hidden_states[:-1], strict=True):  # T5's last is scaled here
        torch.testing.assert_close(ours, other, atol=1e-4, rtol=0)
    logits = model.logits(model(ids, lengths, targets))
    torch.testing.assert_close(logits[target_real], expected.logits[target_real], atol=1e-4, rtol=0)
    torch.testing.assert_close(cross_entropy(logits.flatten(0, 1), labels.flatten()), expected.loss, atol=1e-4, rtol=0)

    written, difference = export.export("brought")
    assert difference < 1e-4
    again = THEIRS[name][0].from_pretrained(written).eval()
    same = again(input_ids=ids, attention_mask=real.long(), decoder_input_ids=read).logits
    torch.testing.assert_close(same[target_real], expected.logits[target_real], atol=1e-4, rtol=0)


def writer_with(folder: Path, key: str, file: str | None, value: int | None, elsewhere: int | None) -> writing.Writer:
    """Import a checkpoint in one of whose files a setting has this value; the other has it `elsewhere`, or is not there."""
    for kind in ("config.json", "generation_config.json"):
        settings = json.loads((folder / kind).read_text()) | ({key: value if kind == file else elsewhere} if file else {})
        (folder / kind).write_text(json.dumps(settings))
    if file == "config.json":
        (folder / "generation_config.json").unlink()
    block = {"family": "encoder_decoder", "licence": "none", "source": {"kind": "files", "paths": [f"{folder}/*"]}}
    stage.bring(params.check(tiny_params(checkpoints={"brought": block})), "brought", Run(None))
    return writing.load("brought")


@torch.no_grad()
@pytest.mark.parametrize(("name", "file"), [
    ("bart", "config.json"), ("marian", "generation_config.json"), ("t5", "generation_config.json"), ("t5", None),
])  # fmt: skip
def test_a_text_cut_at_its_limit_ends_as_that_of_transformers(project, name, file):
    """By `forced_eos_token_id`; a file of settings for writing overrides config.json. And so does what is exported again."""
    folder = given(project / "given" / name, name)
    last = {"bart": 2, "marian": 11, "t5": 9}[name] if file else None
    writer = writer_with(folder, "forced_eos_token_id", file, last, elsewhere=5)
    sources = [writer.source(line) for line in SENTENCES[:4]]
    for where in (folder, export.export("brought")[0]):
        theirs = THEIRS[name][0].from_pretrained(where).eval()
        assert theirs.generation_config.forced_eos_token_id == last
        told = {"eos_token_id": writer.end, "decoder_start_token_id": writer.model.start}
        told["use_cache"] = False  # T5 has one for as many layers as its encoder has
        theirs.generation_config.update(bad_words_ids=[[i] for i in writer.forbidden.tolist() if i != last], **told)

        def generated(source: list[int], theirs=theirs, **how) -> list[int]:
            made = theirs.generate(torch.tensor([source]), max_new_tokens=6, do_sample=False, **how)[0, 1:].tolist()
            return made[: made.index(writer.end)] if writer.end in made else made

        greedy = writer.write(sources, Greedy(kind="greedy", max_new_tokens=6, repetition_penalty=1.3), 4)
        assert greedy == [generated(source, repetition_penalty=1.3) for source in sources]
        beams = writer.write(sources, Beam(kind="beam", beams=3, length_penalty=1.0, max_new_tokens=6), 4)
        assert beams == [generated(source, num_beams=3, length_penalty=1.0) for source in sources]
        drawn = writer.write(sources, Sample(kind="sample", seed=1, max_new_tokens=6), 4)
        whole = [text for text in (*greedy, *drawn) if len(text) == 6 - (last == writer.end)]
        assert whole and (last in (None, writer.end) or all(text[-1] == last for text in whole))


@torch.no_grad()
@pytest.mark.parametrize(("name", "file"), [("bart", "config.json"), ("bart", "generation_config.json"), ("t5", "generation_config.json")])
def test_a_text_begins_as_that_of_transformers(project, name, file):
    """By `forced_bos_token_id`, as large BARTs have it. And so does what is exported again."""
    folder = given(project / "given" / name, name)
    writer = writer_with(folder, "forced_bos_token_id", file, 7, elsewhere=None)
    sources = [writer.source(line) for line in SENTENCES[:4]]
    for where in (folder, export.export("brought")[0]):
        theirs = THEIRS[name][0].from_pretrained(where).eval()
        told = {"eos_token_id": writer.end, "decoder_start_token_id": writer.model.start, "use_cache": False}
        theirs.generation_config.update(bad_words_ids=[[i] for i in writer.forbidden.tolist()], **told)
        beams = Beam(kind="beam", beams=3, length_penalty=1.0, max_new_tokens=6)
        for how, options in ((Greedy(kind="greedy", max_new_tokens=6), {}), (beams, {"num_beams": 3})):
            for source, ours in zip(sources, writer.write(sources, how, 4), strict=True):
                expected = theirs.generate(torch.tensor([source]), max_new_tokens=6, do_sample=False, **options)[0, 1:].tolist()
                assert ours == (expected[: expected.index(writer.end)] if writer.end in expected else expected) and ours[0] == 7
    # version 4 reads config.json in place of a file that says it was made of it
    written = json.loads((where / "generation_config.json").read_text())
    assert not written.get("_from_model_config") and written["forced_bos_token_id"] == 7


def test_rates_of_dropout_that_are_not_kept_are_said(project, capsys):
    """A Marian drops no attention weights in training, and ours as many as other numbers; a BERT's other rates are refused."""
    for name, rates in (("marian", {}), ("bart", {"attention_dropout": 0.1, "activation_dropout": 0.1})):
        folder = given(project / "given" / name, name)
        config = json.loads((folder / "config.json").read_text()) | {"dropout": 0.1} | rates
        (folder / "config.json").write_text(json.dumps(config))
        block = {"family": "encoder_decoder", "licence": "none", "source": {"kind": "files", "paths": [f"{folder}/*"]}}
        stage.bring(params.check(tiny_params(checkpoints={"brought": block})), "brought", Run(None))
        said = "config.json: attention_dropout 0.0 and activation_dropout 0.0: in training these are 0.1 here, as dropout is"
        assert (said in capsys.readouterr().out) == (name == "marian")


def test_several_last_tokens_are_refused(project):
    folder = given(project / "given" / "bart", "bart")
    (folder / "generation_config.json").write_text('{"forced_eos_token_id": [2, 3]}')
    block = {"family": "encoder_decoder", "licence": "none", "source": {"kind": "files", "paths": [f"{folder}/*"]}}
    with pytest.raises(SesameError, match=r"forced_eos_token_id: \[2, 3\] is not supported, only one id or null"):
        stage.bring(params.check(tiny_params(checkpoints={"brought": block})), "brought", Run(None))


def architecture(**changes) -> params.Architecture:
    sizes = {"num_layers": 2, "hidden_size": 16, "num_heads": 2, "intermediate_size": 32, "max_length": 32}
    return TypeAdapter(params.Architecture).validate_python({"name": "encoder_decoder", **sizes, **changes})


@torch.no_grad()
def test_a_task_reads_the_encoder_or_the_decoders_last_state(tokens):
    """As BART's classifier does: the same text in both, the state at its last token."""
    ids, lengths, _ = batch(tokens, text(3).splitlines()[:4], 32)
    alone, both = (store.build(architecture(task_states=states, decoder_layers=3), tokens).eval() for states in ("encoder", "both"))
    both.load_state_dict(alone.state_dict())
    assert (alone.num_layers, both.num_layers) == (2, 5)
    assert len(alone.layers(ids, lengths)) == 3 and len(both.layers(ids, lengths)) == 6
    mean = torch.stack([own[:length].mean(0) for own, length in zip(alone.top(ids, lengths), lengths, strict=True)])
    torch.testing.assert_close(alone.pool(alone.top(ids, lengths), lengths), mean)
    assert architecture().task_states == "encoder"
    torch.testing.assert_close(both.pool(both.top(ids, lengths), lengths), both(ids, lengths, ids)[torch.arange(len(ids)), lengths - 1])
    longer = torch.nn.functional.pad(ids, (0, 3))
    for model in (alone, both):
        pooled = model.pool(model.top(ids, lengths), lengths)
        torch.testing.assert_close(model.pool(model.top(longer, lengths), lengths), pooled, msg="padding says nothing")
    names = [name for name, _ in both.named_parameters()]
    depths = {name: both.depth(name) for name in names}
    assert depths["token_embedding.weight"] == depths["decoder.position_embedding.weight"] == 0
    assert depths["encoder.blocks.1.attention.query.weight"] == 2 and depths["decoder.blocks.0.attention.query.weight"] == 3
    assert max(depths.values()) == 5 and alone.depth("decoder.blocks.0.attention.query.weight") == 3


@pytest.mark.parametrize(("changes", "said"), [
    ({"head_size": 12, "positions": "rotary"}, "rotary positions need heads of hidden_size / num_heads"),
    ({"activation": "tanh"}, "'relu', 'gelu', 'gelu_tanh', 'silu'"),
    ({"decoder_layers": 0}, "greater than 0"),
])  # fmt: skip
def test_bad_settings_are_refused(changes, said):
    with pytest.raises(ValidationError, match=said):
        architecture(**changes)


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary", "relative", "alibi"])
def test_a_target_sees_what_is_before_it_and_all_of_the_source(tokens, positions):
    model = store.build(architecture(positions=positions, norm_first=positions == "relative"), tokens).double().eval()
    ids, targets = torch.randint(5, 50, (2, 2, 9))
    lengths = torch.tensor([9, 6])
    hidden = model(ids, lengths, targets)
    for place in (0, 4):
        other = targets.clone()
        other[:, place] += 1
        moved = (model(ids, lengths, other) - hidden).abs().amax((0, 2))
        assert (moved[: place + 1] == 0).all() and (moved[place + 1 :] > 0).all()
    other = ids.clone()
    other[:, 5:] += 1
    moved = (model(other, lengths, targets) - hidden).abs().amax(2)
    assert (moved > 0).all()
    other[:, 5] -= 1
    assert ((model(other, lengths, targets) - hidden).abs().amax(2)[1] == 0).all(), "padding of the source is not seen"


def test_a_model_that_is_trained_here_goes_out(tokens, project):
    for name, changes in {
        "bart": {}, "t5": {"positions": "relative", "norm": "rms_norm", "norm_first": True, "biases": False, "embedding_norm": False,
                           "activation": "geglu_tanh", "tie_word_embeddings": False},
        "marian": {"positions": "sinusoidal", "activation": "relu", "embedding_norm": False, "scale_embedding": True},
    }.items():  # fmt: skip
        block = architecture(**changes)
        store.save(Path("data/models", name), store.build(block, tokens).state_dict(), block, tokens)
        written, difference = export.export(name)
        assert difference < 1e-4
        config = transformers.AutoConfig.from_pretrained(written)
        assert config.model_type == name and config.decoder_start_token_id == tokenizer.CLS
        stored = json.loads((written / "config.json").read_text()).get("tie_word_embeddings", True)
        assert stored == (name != "t5"), "version 4 of transformers reads it there"


@pytest.mark.parametrize(("name", "marks"), [("t5", ["<extra_id_0>", "<extra_id_1>"]), ("bart", ["<mask>", "<mask>"])])
def test_an_imported_model_reads_gaps_as_transformers_does(project, name, marks):
    """T5's are sentinels, one after the other, and what it writes for each is marked; BART has a mask."""
    folder = given(project / "given" / name, name, 2 * (name == "t5"))
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    if name == "t5":
        theirs.add_special_tokens({"additional_special_tokens": marks})
        theirs.save_pretrained(folder)
    block = {"family": "encoder_decoder", "licence": "none", "source": {"kind": "files", "paths": [f"{folder}/*"]}}
    stage.bring(params.check(tiny_params(checkpoints={"brought": block})), "brought", Run(None))
    writer = writing.load("brought")
    source = writer.source("the [MASK] dog sees [MASK] .")
    assert source == theirs("the {} dog sees {} .".format(*marks)).input_ids
    [text] = writer.write([source], Greedy(kind="greedy", max_new_tokens=5), 1)
    assert isinstance(writer.text(text), str)
    if name == "t5":
        first, second = theirs.convert_tokens_to_ids(marks)
        dog = theirs("dog", add_special_tokens=False).input_ids
        assert writer.text([first, *dog, second]) == "<0> dog <1>" and not {first, second} & {*writer.forbidden.tolist()}


@pytest.mark.parametrize("setting", ["decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id"])
def test_a_token_beyond_the_vocabulary_is_refused(tokens, setting):
    sizes = {"num_layers": 1, "hidden_size": 8, "num_heads": 1, "intermediate_size": 8, "max_length": 8, setting: tokens.vocab_size}
    architecture = TypeAdapter(params.Architecture).validate_python({"name": "encoder_decoder", **sizes})
    with pytest.raises(SesameError, match=f"{setting} is {tokens.vocab_size}, and the tokenizer has"):
        store.build(architecture, tokens)
