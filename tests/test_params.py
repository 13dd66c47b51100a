"""params.yaml: the file of the project fits the code, and every mistake is one line with its path, all at once."""

import copy
import functools
import io
import json
import os
import re
import shutil
from datetime import date
from pathlib import Path

import pytest
from dvc.utils.hydra import apply_overrides
from dvc.utils.serialize import modify_yaml
from ruamel.yaml import YAML

from components import params
from components.core.errors import SesameError
from components.params.references import _references, problems_of_names
from pipelines import profiles
from tests.conftest import tiny_params

PYPI = {"kind": "pypi", "project": "demo", "version": "1", "filename": "a.whl", "sha256": "0" * 64, "members": ["*"]}
LONG = {"name": "long_encoder", "num_layers": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 32, "max_length": 32}
EXPECTED = {"variant": "40", "task": "same", "direction": "higher", "matters": 0.01}
ROOT = Path(__file__).parents[1]


def test_the_projects_own_file_is_right_and_needs_a_package_index_alone():
    own = params.load(ROOT / "params.yaml").model_dump_json()
    assert set(re.findall(r'"source":\{"kind":"(\w+)"', own)) == {"pypi"}


def test_schema_is_current_and_named_in_the_first_line():
    schemas = params.schemas()
    for name, text in schemas.items():
        assert (ROOT / "components" / name).read_text() == text, "run `python -m components.params`"
        assert json.loads(text)["additionalProperties"] is False
    for file in params.files(ROOT):
        place, name = {
            params.FILE: ("components", "params"), params.STUDIES: ("../components", "studies"),
        }.get(file, ("../../components", "study"))  # fmt: skip
        assert (ROOT / file).read_text().splitlines()[0] == f"# yaml-language-server: $schema={place}/{name}.schema.json"
    assert len(schemas) == 3


@pytest.mark.parametrize("file", params.files(ROOT), ids=str)
def test_dvc_and_sesame_write_params_as_they_are_shipped(file, tmp_path):
    """So that an editor which reads and writes the file changes nothing else."""
    path = tmp_path / "params.yaml"
    shutil.copy(ROOT / file, path)
    with modify_yaml(path):
        pass
    assert path.read_text() == (ROOT / file).read_text()
    editor, written = profiles.editor(), io.StringIO()
    editor.dump(profiles.parsed(editor, path.read_text()), written)
    assert written.getvalue() == path.read_text()


@pytest.mark.parametrize(
    ("file", "name", "shared"),
    [
        ("params.yaml", "models.bert", "trainer"), ("params.yaml", "corpora.after_1900", "splits"),
        ("studies/params.yaml", "models.gpt_2018", "trainer"),
    ],
)
def test_dvcs_own_override_changes_one_value(file, name, shared, tmp_path):
    """It merges into the objects of the file: a plain alias would keep its value, or take another's with it."""
    shutil.copy(ROOT / file, tmp_path / "params.yaml")
    section, entry = name.split(".")
    raw = YAML(typ="safe").load(ROOT / file)
    key, value = next((key, value) for key, value in raw[section][entry][shared].items() if value)
    raw[section][entry][shared] = {**raw[section][entry][shared], key: value / 2}  # the loader shares it with its alias
    apply_overrides(str(tmp_path / "params.yaml"), [f"{name}.{shared}.{key}={value / 2}"])
    assert YAML(typ="safe").load(tmp_path / "params.yaml") == raw


@pytest.mark.parametrize("file", [params.FILE, params.STUDIES])
def test_no_two_sections_are_one_object(file):
    """So that the same holds of all: outside of lists, which DVC writes anew, an alias stands in a merge, `{<<: *name}`."""

    def mappings(value):
        if isinstance(value, dict):
            yield value
            for part in value.values():
                yield from mappings(part)

    seen = [id(mapping) for mapping in mappings(YAML().load(ROOT / file))]
    assert len(seen) == len(set(seen))


def problems(change) -> list[str]:
    raw = tiny_params()
    change(raw)
    with pytest.raises(SesameError) as caught:
        params.check(raw)
    return str(caught.value).splitlines()


FILES = {"kind": "files", "paths": ["mini"]}
MORE = {
    "name": "pretrained",
    "objective": {"name": "mlm"},
    "optimizer": {"learning_rate": 0.001},
    "budget": {"steps": 2},
    "batch_size": 4,
}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda raw: raw["models"]["bert"].update(learning_rat=1),
            "models.bert.learning_rat: unknown key (did you mean optimizer.learning_rate?)",
        ),
        (lambda raw: raw["models"]["bert"].update(budget={"seconds": 60}), "models.bert.budget.seconds: unknown key (there are: flops, "),
        (lambda raw: raw["models"]["bert"].update(budget={"token": 60}), "models.bert.budget.token: unknown key (did you mean tokens?)"),
        (lambda raw: raw["models"]["bert"].update(retrievals=1), "models.bert.retrievals: unknown key here; it belongs to another block"),
        (lambda raw: raw.update(vocab_size=1), "vocab_size: unknown key here; it belongs to another block"),
        (lambda raw: raw["corpora"]["base"].update(language="“en”"), "corpora.base.language: String should match pattern"),
        (lambda raw: raw["studies"]["rate"].update(question=""), "studies.rate.question: String should have at least 1 character"),
        (
            lambda raw: [
                raw["finetune"]["models"].append("majority"), raw["models"].update(majority=raw["models"]["bert"]),
                raw["finetune"]["recipes"].update(majority=raw["finetune"]["recipes"]["bert"]),
            ],
            "finetune.models[3]: majority is a baseline, too (baselines.methods), and tables have both; rename the model",
        ),
        (lambda raw: raw["models"]["bert"].update(prompts=["x" * 999]), f"models.bert: prompt '{'x' * 60}'... has no [MASK]; mark"),
        (
            lambda raw: raw["studies"]["rate"].update(learning_rates={"factors": [0.5, 0.5000001], "seed": 9}),
            "studies.rate.learning_rates: factors: two of [0.5, 0.5000001] are 0.5 when written with six digits; list one of them",
        ),
        (
            lambda raw: raw["models"]["bert"]["architecture"].update(num_heads=3),
            "models.bert.architecture: hidden_size 16 is not divisible by num_heads 3",
        ),
        (lambda raw: raw["models"]["gpt"]["objective"].update(name="cml"), "models.gpt.objective: no name 'cml' (there are: mlm, "),
        (lambda raw: raw["models"]["gpt"].update(objective={"name": "mlm"}), "models.gpt: objective mlm can't train architecture decoder"),
        (lambda raw: raw["models"]["bert"]["optimizer"].update(learning_rate="fast"), "models.bert.optimizer.learning_rate: "),
        (
            lambda raw: raw["models"]["bert"].update(budget={"tokens": 5, "steps": 2}),
            "models.bert.budget: give exactly one of tokens, flops, steps, minutes",
        ),
        (lambda raw: raw["models"]["bert"].update(batch_size=0), "models.bert.batch_size: "),
        (lambda raw: raw["tasks"]["same"]["train"].pop("source"), "tasks.same.train: give either a source or a share of train"),
        (lambda raw: raw["tasks"]["same"].update(train={"share": 0.5}), "tasks.same: train has no source"),
        (lambda raw: raw["tasks"]["same"].update(metrics=["pearson"]), "tasks.same: metric pearson does not fit a classification task"),
        (lambda raw: raw["finetune"]["tasks"].append("mnli"), "finetune.tasks[1]: no 'mnli' in tasks (there are: same)"),
        (
            lambda raw: raw["encodings"]["tiny"].update(tokenizer="big"),
            "encodings.tiny.tokenizer: no 'big' in tokenizers (there are: tiny)",
        ),
        (
            lambda raw: raw["corpora"]["base"]["parts"][0]["source"].update(kind="ftp"),
            "corpora.base.parts[0].source: no kind 'ftp' (there are: ",
        ),
        (
            lambda raw: raw["vectors"]["one"].update(kind="word2vec"),
            "vectors.one: no kind 'word2vec' (there are: skip_gram, cbow, fasttext, ppmi_svd)",
        ),
        (
            lambda raw: raw["alignments"]["again"]["dictionary"].update(kind="file"),
            "alignments.again.dictionary: no kind 'file' (there are: wordnet, identical, pairs, parallel)",
        ),
        (
            lambda raw: raw["alignments"]["again"].update(source=raw["alignments"]["again"]["target"]),
            "alignments.again: source and target are the same space; name two different ones",
        ),
        (
            lambda raw: raw["alignments"]["again"].update(methods=["xing"]),
            "alignments.again.methods[0]: no preset 'xing' (there are: mikolov_2013, ",
        ),
        (
            lambda raw: raw["alignments"]["again"].update(methods=["xing_2015", {"preset": "xing_2015", "start": "numerals"}]),
            "alignments.again: methods: 'xing_2015' is listed twice; give one of them another `name`",
        ),
        (
            lambda raw: raw["alignments"]["again"].update(methods=[{"preset": "mikolov_2013", "whiten": True}]),
            "alignments.again.methods[0]: whiten, reweight and dewhiten need a rotation, map: "
                    "procrustes, and map is least_squares",
        ),
        (
            lambda raw: raw["alignments"]["again"].update(methods=[{"preset": "xing_2015", "start": "similarity"}]),
            "alignments.again.methods[0]: start: similarity finds too few correct pairs by itself; set self_learning",
        ),
        (
            lambda raw: raw.update(published_vectors={"one": {"source": {"kind": "files", "paths": ["x"]}, "licence": "none"}}),
            "published_vectors.one: vectors.one has the same name, and both would be written to data/vectors/one",
        ),
        (lambda raw: raw.pop("seed"), "seed: missing"),
        (lambda raw: raw.update(seed=2**64), "seed: a number beyond 2**63"),
        (lambda raw: raw.update(seed=2**32), "seed: Input should be less than 4294967296"),
        (lambda raw: raw.update(seed=1e30), "seed: "),
        (lambda raw: raw["finetune"].update(seeds=[2**63 - 1]), "finetune.seeds[0]: Input should be less than"),
        (lambda raw: raw["vectors"]["one"].update(seed=-1), "vectors.one.seed: Input should be greater than or equal to 0"),
        (lambda raw: raw["models"]["bert"].update(budget={"steps": 1e30}), "models.bert.budget.steps: "),
        (
            lambda raw: raw["models"]["bert"].update(budget={"minutes": float("inf")}),
            "models.bert.budget.minutes: Input should be a finite number",
        ),
        (
            lambda raw: raw["models"]["bert"].update(budget={"flops": 1e300}),
            "models.bert.budget.flops: Input should be less than or equal to 1000",
        ),
        (
            lambda raw: raw["models"]["bert"]["optimizer"].update(learning_rate=float("nan")),
            "models.bert.optimizer.learning_rate: Input should be a finite number",
        ),
        (
            lambda raw: raw["models"]["bert"]["architecture"].update(hidden_size=10**13),
            "models.bert.architecture.hidden_size: Input should be less than or equal to 1099511627776",
        ),
        (
            lambda raw: raw["models"]["bert"]["trainer"].update(threads=10000),
            "models.bert.trainer.threads: Input should be less than or equal to 1024",
        ),
        (
            lambda raw: raw["models"]["bert"].update(objective={"name": "electra"}, prompts=[], run={"strategy": "fsdp"}),
            "models.bert: run.strategy fsdp can't shard weights that are shared, as those of this "
                    "objective are; take ddp",
        ),
        (
            lambda raw: (
                raw["models"]["bert"].update(run={"strategy": "fsdp"}),
                raw["models"]["bert"]["architecture"].update(shared_layers="all"),
            ),
            "models.bert: run.strategy fsdp can't shard weights that are shared, as those of this "
                    "architecture are; take ddp",
        ),
        (
            lambda raw: raw["models"]["bert"]["architecture"].update(name="deberta", position_buckets=64),
            "models.bert.architecture: position_buckets 64 distinguish 32 distances, and there are 32: set fewer buckets, or none",
        ),
        (
            lambda raw: raw["models"]["bert"].update(phases=[{"share": 0.5, "max_length": 2}]),
            "models.bert.phases[0].max_length: Input should be greater than or equal to 8",
        ),
        (
            lambda raw: raw["tokenizers"]["tiny"].update(kind="bytes"),
            "tokenizers.tiny: kind bytes: vocab_size has no effect, as it is the number of bytes; leave it out",
        ),
        (lambda raw: raw["tokenizers"]["tiny"].pop("vocab_size"), "tokenizers.tiny: kind bpe: vocab_size is missing"),
        (
            lambda raw: raw["models"]["bert"]["objective"].update(sentence_order=True),
            "models.bert.objective: sentence_order and next_sentence can't both be true; set next_sentence: false",
        ),
        (
            lambda raw: raw["models"]["bert"]["objective"].update(inputs="full_sentences"),
            "models.bert.objective: next_sentence needs pairs: leave out `inputs: full_sentences`, "
                    "or set `next_sentence: false`",
        ),
        (
            lambda raw: raw["models"]["bert"]["objective"].update(span_probability=0.2, whole_word=True),
            "models.bert.objective: whole_word has no effect with span_probability",
        ),
        (
            lambda raw: raw["models"]["bert"]["objective"].update(longest_span=3),
            "models.bert.objective: longest_span has no effect: span_probability is not set; leave it out",
        ),
        (
            lambda raw: raw["models"]["bert"].update(objective={"name": "electra", "learns": "targets", "detector_weight": 5}, prompts=[]),
            "models.bert.objective: detector_weight has no effect: learns: targets detects nothing; leave it out",
        ),
        (
            lambda raw: raw["tasks"]["same"].update(range=[0, 5]),
            "tasks.same: range has no effect: it is for kind regression, and this task is of kind classification; leave it out",
        ),
        (
            lambda raw: raw["tasks"]["same"].update(lowercase=True),
            "tasks.same: lowercase has no effect: it is for kind text, and this task is of kind classification; leave it out",
        ),
        (
            lambda raw: raw["tasks"]["same"].update(table={"format": "jsonl", "fields": 3, "text_a": "a", "label": "b"}),
            "tasks.same.table: fields has no effect: format jsonl has no fields to count; leave it out",
        ),
        (
            lambda raw: raw["tasks"]["same"]["table"].update(thresholds=[0.5], label_names={"a": "no"}),
            "tasks.same.table: label_names has no effect: thresholds make the labels out of numbers; leave it out",
        ),
        (
            lambda raw: raw["corpora"]["base"]["parts"][0].update(reader={"format": "parquet", "column": "a", "header": True}),
            "corpora.base.parts[0].reader: header has no effect: format parquet has no fields to count; leave it out",
        ),
        (
            lambda raw: raw["corpora"]["base"].update(cleaning={"near_duplicates": None, "near_duplicates_min_words": 9}),
            "corpora.base.cleaning: near_duplicates_min_words has no effect: near_duplicates is null; leave it out",
        ),
        (
            lambda raw: raw["alignments"]["again"].update(methods=[{"preset": "xing_2015", "neighbours_among": 9}]),
            "alignments.again.methods[0]: neighbours_among has no effect: it is for map: rcsls, and map is procrustes; leave it out",
        ),
        (
            lambda raw: raw["alignments"]["again"].update(methods=[{"preset": "artetxe_2017", "csls_k": 5}]),
            "alignments.again.methods[0]: csls_k has no effect: no step of this method uses neighbours",
        ),
        (
            lambda raw: raw["alignments"]["again"].update(retrievals=["nn"], csls_k=5),
            "alignments.again: csls_k has no effect: retrievals lack csls; leave it out",
        ),
        (
            lambda raw: raw["search"].update(pruner={"min_epochs": 3}),
            "search.pruner: min_epochs has no effect: name: none stops no trial; leave it out",
        ),
        (
            lambda raw: raw["baselines"]["recipe"].update(head="mix"),
            "baselines: recipe.head has no effect: these networks have no pre-trained layers; leave it out",
        ),
        (
            lambda raw: raw["models"]["bert"]["objective"].update(span_boundary=True),
            "models.bert.objective: span_boundary needs spans: set span_probability, e.g. 0.2 as in SpanBERT",
        ),
        (
            lambda raw: raw["models"]["bert"]["architecture"].update(shared_layers="all", layer_groups=3),
            "models.bert.architecture: num_layers 2 is not divisible by layer_groups 3",
        ),
        (
            lambda raw: raw["models"]["bert"]["architecture"].update(layer_groups=2),
            "models.bert.architecture: layer_groups: 2 has no effect with shared_layers: none; leave one of them out",
        ),
        (
            lambda raw: raw["checkpoints"].update(
                a={"family": "long_encoder", "licence": "mine", "source": {"kind": "files", "paths": ["a/*"]}}
            ),
            "checkpoints.a.family: Input should be 'encoder', 'decoder', 'deberta', 'xlnet', 'canine' or 'encoder_decoder'",
        ),
        (
            lambda raw: raw["models"]["bert"]["architecture"].update(num_layers=10**7),
            "models.bert.architecture.num_layers: Input should be less than or equal to 10000 (it is 10000000)",
        ),
        (
            lambda raw: raw["models"]["bert"].update(phases=[{"share": 0.5}]),
            "models.bert.phases[0]: a phase with neither max_length nor batch_size changes nothing; give one of them, or",
        ),
        *(
            (
                lambda raw, size=size: raw["models"]["bert"].update(architecture={"name": "encoder", "size": size}),
                f"models.bert.architecture: size {size!r} is no size; take one of tiny, mini, small, medium, base, large, or a",
            )
            for size in (2.0, 0, 257, "big", True)
        ),
        (
            lambda raw: raw["models"]["bert"].update(architecture=LONG | {"attention": "full", "window": 3}),
            "models.bert.architecture: window has no effect: it is of attention: windows, and here that is full; leave it",
        ),
        (
            lambda raw: raw["models"]["bert"].update(architecture=LONG | {"attention": "linear", "chunk": 3}),
            "models.bert.architecture: chunk has no effect: it is of attention: hashes, and here that is linear; leave it",
        ),
        (
            lambda raw: raw["models"]["bert"].update(phases=[{"share": 0.5, "max_length": 64}]),
            "models.bert: a phase of 64 tokens is longer than the architecture reads (32)",
        ),
        (
            lambda raw: raw["models"]["bert"].update(phases=[{"share": 0.5, "batch_size": 4}] * 2),
            "models.bert: the shares of phases sum to 1, and leave nothing for the rest of the training",
        ),
        (
            lambda raw: raw["models"]["bert"].update(phases=[{"share": 0.5, "batch_size": 9}], trainer={"accumulate": 2}),
            "models.bert: batch_size 9 is not divisible by 2, the micro-batches that accumulate: 2 makes on 1 device",
        ),
        (
            lambda raw: raw["models"]["bert"].update(phases=[{"share": 0.5, "batch_size": 4}], budget={"minutes": 1}),
            "models.bert: phases need a budget in tokens, flops or steps, and this one is in minutes",
        ),
        (
            lambda raw: raw["models"]["elmo"].update(phases=[{"share": 0.5, "batch_size": 4}]),
            "models.elmo: objective bilm continues the text of the step before and can't have phases",
        ),
        (
            lambda raw: raw["corpora"]["base"]["parts"][0].update(source=PYPI | {"filename": "../../a.whl"}),
            "corpora.base.parts[0].source.filename: String should match pattern",
        ),
        (
            lambda raw: raw["corpora"]["base"]["parts"][0].update(source={"kind": "url", "url": "http://[::1/a", "sha256": "0" * 64}),
            "corpora.base.parts[0].source.url: Input should be a valid URL",
        ),
        (lambda raw: raw.update({2024: 1}), "the file: the key 2024 is no text; write it in quotes"),
        (lambda raw: raw["models"].update({True: raw["models"]["bert"]}), "models: the key True is no text; write it in quotes"),
        (lambda raw: raw["tasks"]["same"]["table"].update({None: 1}), "tasks.same.table: the key None is no text; write it in quotes"),
        (
            lambda raw: raw["models"]["bert"]["run"].update(devices=3),
            "models.bert: batch_size 8 is not divisible by 3, the micro-batches that accumulate: 1 makes on 3 devices",
        ),
        (lambda raw: raw["models"]["elmo"].update(prompts=["no star"]), "models.elmo: prompt 'no star' must mark one *word*"),
        (
            lambda raw: raw["finetune"]["recipes"]["bert"].update(max_length=64),
            "finetune.recipes.bert.max_length 64 is more than the model reads",
        ),
        (
            lambda raw: raw["search"]["space"].update(learning_rat={"low": 0.1, "high": 0.2}),
            "search.space: learning_rat is not a field of a recipe (did you mean learning_rate?)",
        ),
        (
            lambda raw: raw["search"]["space"].update(dropout={"low": 0.1, "high": 1.5}),
            "search.space: dropout: Input should be less than 1 (it is 1.5)",
        ),
        (
            lambda raw: raw["search"]["space"].update(patience={"choices": [False]}),
            "search.space: patience: false is not a number; give a number, or null for none",
        ),
        (
            lambda raw: raw["search"]["space"].update(epochs={"choices": [2.5]}),
            "search.space: epochs: Input should be a valid integer, got a number with a fractional part (it is 2.5)",
        ),
        (lambda raw: raw["search"]["space"].update(dropout={"low": 0.1}), "search.space.dropout: give either low and high, or choices"),
        (
            lambda raw: raw["search"]["space"].update(dropout={"low": 0.0, "high": 0.1, "log": True}),
            "search.space.dropout: log needs a low above 0",
        ),
        (
            lambda raw: raw["search"]["space"].update(method={"low": 1, "high": 2}),
            "search.space: method is not a single number: give its choices",
        ),
        (
            lambda raw: raw["search"].update(models=["bert"], space={"max_length": {"choices": [16, 64]}}),
            "search.space.max_length 64 is more than the model reads",
        ),
        (
            lambda raw: raw["search"].update(models=["bert", "gpt"], space={"rank": {"choices": [4, 8]}}),
            "search.space: rank has no effect under method full; leave it out",
        ),
        (
            lambda raw: raw["search"].update(models=["elmo"], space={"layer_decay": {"low": 0.5, "high": 1.0}}),
            "search.space: layer_decay has no effect under method features; leave it out",
        ),
        (
            lambda raw: (
                raw["finetune"]["recipes"]["bert"].update(head="decomposable_attention", pair="apart"),
                raw["search"].update(models=["bert"], space={"pair": {"choices": ["apart", "joined"]}}),
            ),
            "search.space: pair joined does not fit the recipe of bert: decomposable_attention needs two separate texts",
        ),
        (
            lambda raw: raw["models"]["elmo"].update(
                architecture={"name": "recurrent", "num_layers": 2, "hidden_size": 16, "inner_size": 32, "max_length": 32},
                objective={"name": "bptt"},
            ),
            "finetune.recipes.elmo: features mixes layers, and those of models.elmo differ in width; leave "
            "models.elmo.architecture.inner_size out",
        ),
        (
            lambda raw: raw["search"].update(models=["elmo"], space={"method": {"choices": ["full", "lora"]}}),
            "search.space.method lora needs the blocks of a Transformer",
        ),
        (lambda raw: raw["search"].update(budget={}), "search.budget: give trials, hours or both"),
        (
            lambda raw: raw["search"].update(models=["bert"], pruner={"name": "hyperband", "min_epochs": 2}),
            "search.pruner: bert has at most 2 epochs",
        ),
        (
            lambda raw: raw["search"].update(tasks=["same"], metric="pearson"),
            "search.metric pearson is not among those of the dev split of tasks.same (accuracy)",
        ),
        (
            lambda raw: raw.update(search=raw["search"] | {"models": ["gpt"]}, finetune=raw["finetune"] | {"models": [], "recipes": {}}),
            "search.models[0]: no recipe for model 'gpt' in finetune.recipes",
        ),
        (lambda raw: raw["search"].update(tasks=["other"]), "search.tasks[0]: no 'other' in tasks (there are: same)"),
        (lambda raw: raw["finetune"].update(tasks=5), "finetune.tasks: Input should be a valid list (it is 5)"),
        (lambda raw: raw["finetune"].update(tasks=None), "finetune.tasks: Input should be a valid list (there is nothing)"),
        (lambda raw: raw["finetune"].update(tasks={}), "finetune.tasks: Input should be a valid list (it is a block of keys)"),
        (lambda raw: raw["corpora"].update(base=None), "corpora.base: Input should be a block of keys (there is nothing)"),
        (lambda raw: raw["corpora"]["base"]["parts"][0].update(reader={}), "corpora.base.parts[0].reader: format is missing"),
        (lambda raw: raw["price"].update(kg_per_kwh={"USA": "0.4"}), "price: kg_per_kwh: '0.4' is a text; write the number"),
        (lambda raw: raw["studies"]["rate"].update(eval_examples={"tset": 3}), "studies.rate.eval_examples: no split 'tset' in its tasks"),
        (lambda raw: raw["studies"]["rate"]["plot"].update(y=["same", "same"]), "studies.rate.plot.y: same is listed twice"),
        (lambda raw: raw["studies"]["rate"].update(expects=[EXPECTED, EXPECTED | {"direction": "lower", "against": "15"}]),
         "studies.rate: expects[1]: the comparison of expects[0], 40 15 same; leave one of them out"),
        (lambda raw: raw["studies"]["rate"]["variants"]["40"].update(change={"": 1}), "studies.rate.variants.40.change.'': unknown key"),
        (
            lambda raw: raw["finetune"]["recipes"]["bert"].update(patience=False),
            "finetune.recipes.bert: patience: false is not a number; give a number, or null for none",
        ),
        (
            lambda raw: raw["corpora"]["base"].update(cleaning={"near_duplicates": False}),
            "corpora.base.cleaning: near_duplicates: false is not a number; give a number, or null for none",
        ),
        (lambda raw: raw["finetune"].update(seeds=[2, True]), "finetune: seeds: true is not a number; give a number"),
        (
            lambda raw: raw["models"]["gpt"]["optimizer"].update(schedule="wsd", warmup=0.5, decay=0.75),
            "models.gpt.optimizer: warmup 0.5 and decay 0.75 of schedule wsd are more than the budget: lower one of them",
        ),
        (
            lambda raw: raw["models"]["gpt"]["optimizer"].update(weight_decay=1e300),
            "models.gpt.optimizer.weight_decay: 1e+300 is beyond 32-bit numbers; most papers have 0.01 to 0.1",
        ),
        (
            lambda raw: raw["models"]["gpt"]["optimizer"].update(warmup=1.0),
            "models.gpt.optimizer: warmup 1 leaves no steps for the decay of schedule linear: take "
                    "schedule constant, or a warmup below 1",
        ),
        (
            lambda raw: raw["finetune"]["recipes"]["bert"].update(schedule="cosine", warmup=1),
            "finetune.recipes.bert: warmup 1 leaves no steps for the decay of schedule cosine: take "
                    "schedule constant, or a warmup below 1",
        ),
        (
            lambda raw: raw["search"].update(models=["bert"], space={"warmup": {"choices": [0.1, 1.0]}}),
            "search.space: warmup 1.0 does not fit the recipe of bert: warmup 1 leaves no steps for the decay of schedule linear",
        ),
        (
            lambda raw: raw["models"]["gpt"]["optimizer"].update(decay=0.5),
            "models.gpt.optimizer: decay has no effect on schedule linear: leave it out, or take schedule: wsd",
        ),
        (
            lambda raw: raw["models"]["gpt"].update(pretrainings=2) or raw["finetune"].update(models=["gpt"], seeds=[1, 2, 3]),
            "finetune.seeds: 3 seeds share the 2 pre-trainings of gpt, and are not independent; list 2 seeds, or set "
            "models.gpt.pretrainings to 3",
        ),
        (
            lambda raw: (
                raw["models"]["gpt"].update(pretrainings=2), raw["finetune"].update(models=["bert"], seeds=[1, 2, 3]),
                raw.update(adapt={"models": ["gpt"], "methods": ["full"], "tasks": ["same"],
                                  "recipes": {"full": raw["finetune"]["recipes"]["gpt"]}}),
            ),
            "finetune.seeds: 3 seeds share the 2 pre-trainings of gpt",
        ),
        (
            lambda raw: raw["derived"].update(short={
                "start": "gpt", "on": "tasks/same",
                "by": {"name": "tuned", "recipe": raw["finetune"]["recipes"]["gpt"] | {"temperature_scaling": True}},
            }),
            "derived.short.by: recipe.temperature_scaling has no effect: the tuned weights go on to other tasks; leave it out",
        ),
        (
            lambda raw: raw["search"].update(space={"epochs": {"choices": [1, 1.0]}}),
            "search.space: epochs: choices [1, 1.0] mean [1, 1] in a recipe, with one of them twice",
        ),
        (lambda raw: raw["models"]["bert"].update(batch_size="1_0"), "models.bert: batch_size: '1_0' is a text; write the number"),
        (lambda raw: raw["tokenizers"]["tiny"].update(lowercase="off"), "tokenizers.tiny: lowercase: 'off' is neither true nor false"),
        (lambda raw: raw["tokenizers"]["tiny"].update(lowercase=1), "tokenizers.tiny: lowercase: 1 is neither true nor false"),
        (lambda raw: raw["models"]["bert"]["architecture"].update(dropout=1), "models.bert.architecture.dropout: Input should be"),
        (
            lambda raw: raw["models"]["bert"]["objective"].update(span_probability=1e-9, longest_span=10**15),
            "models.bert.objective.longest_span: Input should be less than or equal to 1000",
        ),
        (
            lambda raw: raw["models"]["bert"].update(objective={"name": "quick_thoughts"}, prompts=[], batch_size=2),
            "models.bert: batch_size 2: objective quick_thoughts compares a row with others of its "
                    "batch; set 3 or more",
        ),
        (lambda raw: raw["models"]["bert"]["optimizer"].update(learning_rate=1e-300), "models.bert.optimizer.learning_rate: Input"),
        (lambda raw: raw["models"]["bert"]["optimizer"].update(learning_rate=12),
         "models.bert.optimizer.learning_rate: Input should be less than or equal to 1"),
        (lambda raw: raw["finetune"]["recipes"]["bert"].update(learning_rate=3),
         "finetune.recipes.bert.learning_rate: Input should be less than or equal to 1"),
        (lambda raw: raw["models"]["bert"]["run"].update(rendezvous={"head": "x:99999"}), "models.bert.run.rendezvous: head x:99999: a"),
        (lambda raw: raw["models"].update({"a-b": raw["models"]["elmo"]}), "models.a-b: String should match pattern"),
        (lambda raw: raw["finetune"].update(models=["bert", "bert"]), "finetune.models: bert is listed twice"),
        (lambda raw: raw["finetune"].update(eval_examples={"tset": 3}), "finetune.eval_examples: no split 'tset' in its tasks (there"),
        (lambda raw: raw["mixes"]["tiny"].update(tasks=["same", "same"]), "mixes.tiny.tasks: same is listed twice"),
        (
            lambda raw: (raw["corpora"].update(same=raw["corpora"]["base"]), raw["mixes"]["tiny"].update(corpus="same")),
            "mixes.tiny: corpus: same is also the name of one of its tasks; call the corpus otherwise",
        ),
        (lambda raw: raw["alignments"]["again"].update(controls=["again"]), "alignments.again.controls[0]: again can't "
                "be a "
                "control of "
                "itself"),
        (
            lambda raw: raw["alignments"]["again"].update(curve={"methods": ["xing_2015"], "seed_pairs": [10**9, 25]}),
            "alignments.again.curve: seed_pairs [1000000000, 25]: list each number once",
        ),
        (
            lambda raw: raw["alignments"]["again"].update(curve={"methods": ["xing_2015"], "seed_pairs": [25, 10**9]}),
            "alignments.again: curve.seed_pairs: 1000000000 are more than dictionary.train, 30",
        ),
        (
            lambda raw: raw["corpora"]["base"].update(cleaning={"near_duplicates": 0}),
            "corpora.base.cleaning.near_duplicates: Input should be greater than 0",
        ),
        (
            lambda raw: raw["corpora"]["base"].update(splits={"valid": 0.6, "test": 0.4}),
            "corpora.base.splits: valid 0.6 and test 0.4 leave nothing to train on",
        ),
        (
            lambda raw: raw["tasks"]["same"].update(dev={"share": 0.5}, test={"share": 0.5}),
            "tasks.same: the shares of train sum to 1 and leave nothing to train on",
        ),
        (lambda raw: raw["tasks"]["same"]["table"].update(text_b="a"), "tasks.same.table: text_a and text_b are both column 'a'"),
        (lambda raw: raw["tasks"]["same"]["table"].update(text_a="label"), "tasks.same.table: text_a and label are both column 'label'"),
        (
            lambda raw: raw["tasks"]["same"]["table"].update(fields=5, max_fields=2),
            "tasks.same.table: max_fields 2 is less than fields 5",
        ),
        (
            lambda raw: raw["generations"].update(
                g={"model": "gpt", "inputs": {"kind": "beginnings"}, "decoding": {"kind": "sample", "temperature": 1e-300}}
            ),
            "generations.g.decoding.temperature: Input should be greater than or equal to 0.001",
        ),
        (
            lambda raw: raw.update(
                checkpoints={"mini": {"family": "canine", "licence": "none", "source": FILES}},
                derived={"more": {"start": "mini", "on": "encoded/tiny", "by": MORE}},
            ),
            "derived.more: pretrained on text needs a start from `models`, and mini is not there",
        ),
    ],
)
def test_a_mistake_is_one_line_with_its_path(change, said):
    found = problems(change)
    assert len(found) == 1 and found[0].startswith("params.yaml: " + said), found


@pytest.mark.parametrize(
    "source",
    [
        {"kind": "url", "url": "http:/joe:secret@host/x", "sha256": "0" * 64},
        {"kind": "url", "url": "joe:secret@host/x", "sha256": "0" * 64},
        {"kind": "bucket", "addresses": ["s3:/key:secret@b/x"]}, {"kind": "bucket", "addresses": ["s3://key:secret@b/x?token=secret"]},
        {"kind": "hub", "path": "https://joe:secret@hub/a"}, {"kind": "files", "paths": ["http://joe:secret@host/x"]},
    ],
)  # fmt: skip
def test_no_place_shows_a_secret(source):
    """What is refused in its line, what is taken in what cards, MLflow and the entries of stages have of it."""
    raw = tiny_params()
    raw["corpora"]["base"]["parts"][0]["source"] = source
    raw["models"]["gpt"]["run"]["checkpoints_to"] = "s3://key:secret@bucket/x"
    try:
        shown = params.check(raw).model_dump_json()
    except SesameError as error:
        shown = str(error)
    assert "secret" not in shown and ("host" in shown or "/b/x" in shown or "hub" in shown or "s3:/b" in shown), shown


@pytest.mark.parametrize(
    ("name", "make", "said"),
    [
        ("a b.yaml", Path.touch, "a b.yaml: the name of a study is lower case"), ("x.y.yaml", Path.touch, "x.y.yaml: the name of a study"),
        ("pipe.yaml", os.mkfifo, "pipe.yaml: can't be read: no regular file"), ("void.yaml", Path.touch, "block of keys .there is nothing"),
        ("away.yaml", lambda path: path.symlink_to("nowhere"), "away.yaml: can't be read: a link to nowhere"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_study_is_named(tmp_path, name, make, said):
    with open(tmp_path / "params.yaml", "w") as file:
        YAML().dump({key: value for key, value in tiny_params().items() if key != "studies"}, file)
    (tmp_path / "studies/params").mkdir(parents=True)
    (tmp_path / "studies/params/.#editing.yaml").symlink_to("somebody@host.1")  # as Emacs does
    params.load(tmp_path / "params.yaml")
    make(tmp_path / "studies/params" / name)
    with pytest.raises(SesameError, match=f"^.*studies/params/.*{said}"):
        params.load(tmp_path / "params.yaml")


def test_a_choice_is_drawn_as_a_recipe_takes_it():
    space = params.Search(space={"learning_rate": {"choices": [0.001, 1]}, "epochs": {"choices": [1.0, 2]}}).space
    assert [repr(draw.choices) for draw in space.values()] == ["[0.001, 1.0]", "[1, 2]"]


def test_a_block_is_read_again_from_what_it_was_written_as():
    """As estimates and forecasts of past runs do, defaults written out."""
    checked = params.check(tiny_params())
    for block in (block for section in ("models", "tokenizers", "tasks", "corpora") for block in getattr(checked, section).values()):
        assert type(block).model_validate_json(block.model_dump_json()) == block


def test_all_problems_at_once():
    def change(raw):
        raw["sed"] = 1
        raw["models"]["bert"]["architecture"]["num_heads"] = 3
        raw["models"]["gpt"]["encoding"] = "nowhere"
        raw["tokenizers"]["tiny"]["vocab_size"] = 10

    found = problems(change)
    assert found[0] == "params.yaml: 4 problems" and len(found) == 5
    places = [line.split(":")[0].strip() for line in sorted(found[1:])]
    assert places == ["models.bert.architecture", "models.gpt.encoding", "sed", "tokenizers.tiny.vocab_size"]


def test_broken_yaml_names_the_line(tmp_path):
    (tmp_path / "params.yaml").write_text("seed: 1\nmodels: [1, 2\nfinetune: {}\n")
    with pytest.raises(SesameError, match=r"params.yaml, line \d: not valid YAML"):
        params.load(tmp_path / "params.yaml")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "sections expected, as `seed: 1`, nothing found"),
        (b"- seed\n", "sections expected, as `seed: 1`, list found"),
        (b"a: 1\nb: caf\xe9\n", r"line 2: not UTF-8 \(byte 0xe9\)"),
        ("a: 1\n".encode("utf-16"), r"line 1: not UTF-8 \(byte 0xff\)"),
        (bytes(range(256)), "not UTF-8|not valid YAML"),
        ("# ä\n# ä\0".encode(), r"line 2: not valid YAML: the character '\\x00' is not allowed"),  # placed by the bytes before it
        (
            b"seed: 1\n\n and more\n\nseed: 1\n",
            "line 5: seed is there twice, first in line 1; put what is under the second under the first, or remove one",
        ),
        (b"a: &a {m: 1}\nb:\n  <<: *a\n  n: 2\n  n: 3\n", "line 5: n is there twice, first in line 4"),
        (b"a: 1\n<<<<<<< HEAD\nseed: 1\n=======\nseed: 2\n>>>>>>> x\n", "line 2: a marker of a merge conflict; resolve it"),
        (b"a: 1\nseed: 2026-13-45\n", "line 2: not valid YAML: month must be in 1..12"),
        (b"a: 1\n\nseed: " + b"9" * 5000, "line 3: not valid YAML: Exceeds the limit"),
        (b"a: 1\nb: \0", "line 2: not valid YAML: the character '.x00' is not"),
        (b"seed: 0x" + b"f" * 5000, "seed: a number beyond 2\\*\\*63"),
        (b"{[{a: 1}]: 2}", "not valid YAML: unhashable type"),
        (b'"a\\nb": 1\n', r"a\\nb: unknown key"),
        (b"seed: " + b"a" * 5000, r"\(it is 'a{79}\.\.\.\)"),
        (b"seed: &a [*a]\n", "seed: Input should be a valid integer"),
        (b"tasks: &a {b: *a}\n", r"tasks\.b\.b: unknown key"),
    ],
)
def test_what_is_no_params_file_is_one_line(tmp_path, content, said):
    (tmp_path / "params.yaml").write_bytes(content)
    with pytest.raises(SesameError, match=said) as caught:
        params.load(tmp_path / "params.yaml")
    assert "params.yaml" in str(caught.value)


def test_a_byte_order_mark_is_no_matter(tmp_path):
    (tmp_path / "params.yaml").write_bytes((ROOT / "params.yaml").read_text().encode("utf-8-sig"))
    assert params.load(tmp_path / "params.yaml") == params.check(YAML(typ="safe").load(ROOT / "params.yaml"))


def test_a_folder_is_one_line(tmp_path):
    with pytest.raises(SesameError, match="can't be read: Is a directory"):
        params.load(tmp_path)


def test_missing_file_is_one_line(tmp_path):
    with pytest.raises(SesameError, match="no such file"):
        params.load(tmp_path / "params.yaml")


def test_tiny_params_survive_yaml(tmp_path):
    with open(tmp_path / "params.yaml", "w") as file:
        YAML().dump(tiny_params(), file)
    assert params.load(tmp_path / "params.yaml") == params.check(tiny_params())


def test_a_misspelt_model_is_told_once_for_each_place_it_is_looked_up_in():
    """Not once for each of the many that refer to it."""
    raw, studies = YAML(typ="safe").load((ROOT / params.FILE).read_text()), params.studies_beside(ROOT / params.FILE)
    raw["models"]["brt"] = raw["models"].pop("bert")
    studies["models"]["brt_2018"] = studies["models"].pop("bert_2018")
    with pytest.raises(SesameError) as told:
        params.check(raw, studies=studies)
    lines = str(told.value).splitlines()
    assert len(lines) <= 6, lines
    there = re.escape(f"(there are: {', '.join(sorted({*raw['models'], *studies['models']}))})")  # a user adds models, too
    named = rf"model: no 'bert_2018' in models {there}; named so \d+ times, the last is studies"
    assert re.search(rf"studies/params/\w+\.yaml: {named}", str(told.value)), str(told.value)
    first = raw["evaluate"]["models"].index("bert")
    expected = rf"evaluate\.models\[{first}\]: no 'bert' in .*; named so \d+ times, the last is \w+\.models"
    assert re.search(expected, str(told.value)), str(told.value)


def test_tokenizers_and_encodings_stand_in_either_file_and_in_one_only():
    own = {"tokenizers": {"words": {"corpus": "tiny", "vocab_size": 300}}, "encodings": {"words": {"corpus": "tiny", "tokenizer": "words"}}}
    both = params.check(tiny_params(), studies=own)
    assert set(both.tokenizers) == {"tiny", "words"} and both.of_studies("tokenizers") == both.of_studies("encodings") == {"words"}
    assert params.check(tiny_params()).of_studies("encodings") == frozenset()
    raw = tiny_params()
    raw["models"]["bert"]["encoding"] = "words"
    with pytest.raises(SesameError, match=r"models.bert.encoding: no 'words' in encodings \(there are: tiny\)"):
        params.check(raw, studies=own)  # the main pipeline has no stage that makes it
    raw = tiny_params()
    raw["tokenizers"]["words_too"] = {"corpus": "tiny", "vocab_size": 3}
    with pytest.raises(SesameError, match="^params.yaml: tokenizers.words_too.vocab_size"):
        params.check(raw, studies=own)
    for studies, said in (
        (
            {"tokenizers": {"tiny": own["tokenizers"]["words"]}},
            "studies/params.yaml: tokenizers.tiny is also in params.yaml",
        ),
        (
            {"tokenizers": {"words": {"corpus": "tiny", "vocab_size": 3}}},
            r"studies/params.yaml: tokenizers.words.vocab_size: .*300",
        ),
        (
            {"encodings": {"words": {"corpus": "tiny", "tokenizer": "none"}}},
            r"encodings.words.tokenizer: no 'none' in tokenizers",
        ),
        ({"tokenizers": []}, r"studies/params.yaml: tokenizers: names expected, each with its block; \[\] found"),
        ({"encodings": None}, "studies/params.yaml: encodings: names expected, each with its block; nothing found"),
        ({"corpora": {}}, "studies/params.yaml: corpora is also in params.yaml; remove one of them"),
    ):
        with pytest.raises(SesameError, match=said):
            params.check(tiny_params(), studies=studies)


@pytest.mark.parametrize(("size", "layers", "width"), [("tiny", 2, 128), ("base", 12, 768), ("large", 24, 1024), (6, 6, 384)])
def test_a_size_stands_for_four_settings(size, layers, width):
    """And for nothing of its own: a block that is written out is the same, and a study may change it."""
    raw = tiny_params()
    raw["models"]["bert"]["architecture"] = {"name": "encoder", "size": size}
    sized = params.check(raw)
    meant = {"num_layers": layers, "hidden_size": width, "num_heads": width // 64, "intermediate_size": 4 * width}
    raw["models"]["bert"]["architecture"] = {"name": "encoder", "max_length": 512, **meant}
    assert sized == params.check(raw)
    raw["models"]["bert"]["architecture"] = {"name": "encoder", "size": size, "num_layers": layers + 1}
    with pytest.raises(
        SesameError,
        match=(
            f"size {size} means num_layers {layers}, and num_layers: {layers + 1} contradicts it; leave one of them out"
        ),
    ):
        params.check(raw)
    raw = tiny_params()
    raw["studies"]["rate"]["variants"]["40"] = {"change": {"architecture": {"size": size}}}
    checked = params.check(raw)
    changed = params.varied(checked.models, checked.studies["rate"], "40", 1).architecture
    assert (changed.num_layers, changed.hidden_size, changed.max_length) == (layers, width, 32)


def test_variants_that_are_the_same_and_texts_that_yaml_takes_for_others_are_said():
    raw = tiny_params()
    raw["studies"]["rate"]["variants"]["again"] = {"change": {"objective": {"mlm_probability": 0.15}}}
    with pytest.raises(SesameError, match="studies.rate.variants.again: it is the same as 15, so that their difference is noise"):
        params.check(raw)
    raw = tiny_params()
    study, examples = raw["studies"]["rate"], raw["finetune"]["train_examples"]
    as_15 = {"recipe": {"learning_rate": study["recipe"]["learning_rate"]}}, {"train_examples": examples}
    for tuned in as_15:
        study["variants"]["again"] = {"start": "15"} | tuned  # the models of 15, tuned as those are
        with pytest.raises(SesameError, match="studies.rate.variants.again: it is the same as 15, so that their difference is noise"):
            params.check(raw)
    raw = tiny_params()
    variants = raw["studies"]["rate"]["variants"]
    for name, rate in (("slow", 0.001), ("fast", 0.01)):  # tuned on another task first, at two rates, and then once more
        by = {"name": "tuned", "recipe": raw["finetune"]["recipes"]["bert"] | {"learning_rate": rate}}
        variants |= {name: {"start": "15", "on": "tasks/same", "by": by}, f"{name}_again": {"start": name, "recipe": {"epochs": 3}}}
    params.check(raw)
    for wrong, said in ((2026, "(it is 2026)"), (date(2026, 1, 1), "(it is the date 2026-01-01)"), (False, "(it is False)")):
        raw = tiny_params()
        raw["tasks"]["same"]["labels"] = ["no", wrong]
        with pytest.raises(SesameError) as told:
            params.check(raw)
        assert f"tasks.same.labels[1]: Input should be a valid string {said}; write it in quotes" in str(told.value)


@pytest.mark.parametrize(
    ("derived", "said"),
    [
        ({"name": "truncated", "layers": "two"}, "layers: Input should be a valid integer, or a valid list (it is 'two')"),
        ({"name": "truncated", "layers": 0}, "layers: Input should be greater than 0 (it is 0)"),
        ({"name": "truncated", "layers": [[0]]}, "layers[0]: Input should be a valid integer (it is a list)"),
        ({"name": "distilled", "layers": "all"}, "layers: Input should be 'spread' or 'random', or a valid list (it is 'all')"),
        ({"name": "distilled", "layers": []}, "layers: List should have at least 1 item after validation, not 0"),
    ],
)
def test_a_mistake_in_a_setting_of_several_types_is_one_line(derived, said):
    """Pydantic tells it by each of the types, of which one at most was meant."""
    raw = tiny_params(derived={"d": {"model": "bert", "by": {"objective": {"name": "masked"}, "budget": {"steps": 2}} | derived}})
    with pytest.raises(SesameError) as told:
        params.check(raw)
    assert [line.removeprefix("  ") for line in str(told.value).splitlines() if "layers" in line] == [f"derived.d.by.{said}"]


DEEP = ["a: " + "[" * 100_000, "a: " + "{a: " * 100_000, "- " * 100_000, "\n".join(" " * n + "a:" for n in range(3000))]


@pytest.mark.parametrize("text", DEEP, ids=["lists", "blocks", "dashes", "lines"])
def test_a_file_nested_without_end_is_one_line(tmp_path, text):
    """The parser would end the process without a word."""
    (tmp_path / "params.yaml").write_text(text)
    with pytest.raises(SesameError, match=r"params.yaml, line \d+: (nested deeper than 64 levels|not valid YAML)") as told:
        params.load(tmp_path / "params.yaml")
    assert "\n" not in str(told.value)


def test_many_problems_are_not_all_told():
    raw = tiny_params(**{f"unknown_{n}": 1 for n in range(500)})
    with pytest.raises(SesameError, match="500 problems") as told:
        params.check(raw)
    assert len(str(told.value).splitlines()) == params.MOST + 2 and str(told.value).endswith("and 470 more")


def test_a_wrong_key_of_a_study_names_its_file():
    raw = tiny_params()
    studies = {"studies": raw.pop("studies")}
    studies["studies"]["rate"]["variants"]["40"] = {"change": {"objectve": {}}}
    said = r"^studies/params/rate.yaml: variants.40.change.objectve: unknown key \(did you mean objective\?\)$"
    with pytest.raises(SesameError, match=said):
        params.check(raw, studies=studies)


def test_mistakes_of_studies_alone_name_their_file_first():
    raw = tiny_params()
    studies = {"studies": raw.pop("studies")}
    studies["studies"]["rate"] |= {"quetsion": "?", "sedes": [1]}
    with pytest.raises(SesameError) as told:
        params.check(raw, studies=studies)
    first, *others = str(told.value).splitlines()
    assert first == "studies/params/rate.yaml: 2 problems" and others == [
        "  quetsion: unknown key (did you mean question?)", "  sedes: unknown key (did you mean seeds?)"
    ], others
    with pytest.raises(SesameError, match=r"^params.yaml: 3 problems\n(?s:.*)  studies/params/rate.yaml: quetsion"):
        params.check(raw | {"sed": 1}, studies=studies)


def test_a_block_that_names_no_seed_takes_the_top_level_one():
    """Models, vectors and what is derived; one that names a seed keeps it, and so does a process that checks another file after it."""
    raw = tiny_params(seed=7)
    raw["derived"] = {"short": {"start": "gpt", "on": "tasks/same", "by": {"name": "tuned", "recipe": raw["finetune"]["recipes"]["gpt"]}}}
    checked = params.check(raw)
    assert checked.models["bert"].seed == checked.vectors["one"].seed == checked.derived["short"].by.seed == 7
    assert checked.vectors["two"].seed == 2 and params.check(tiny_params()).models["bert"].seed == 1


def test_what_is_written_out_is_read_again():
    """As estimates do: with every default filled in a block says what it said."""
    checked = params.load(ROOT / "params.yaml")
    for block in (*checked.models.values(), *checked.finetune.recipes.values(), *checked.tasks.values()):
        assert type(block).model_validate_json(block.model_dump_json()) == block


def test_every_name_that_a_setting_refers_to_is_looked_up():
    """One setting of each kind in the shipped files: misspelt, it is reported with its place."""
    raw, studies = YAML(typ="safe").load((ROOT / params.FILE).read_text()), params.studies_beside(ROOT / params.FILE)
    raw["adapt"]["models"] = ["minilm"]  # which the default leaves out
    both = {**raw, **studies, **{key: {**raw[key], **studies[key]} for key in params.SHARED if key in studies}}
    kinds = {}
    for section, field in params.Params.model_fields.items():
        for reference in _references(field.annotation, both.get(section), section):
            kinds.setdefault((re.sub(r"\[\d+\]|\.[a-z0-9_]+(?=\.)", "", reference.path), reference.sections), reference)
    assert len(kinds) > 35
    for reference in kinds.values():
        document = copy.deepcopy(both)
        *path, last = [int(key) if key.isdigit() else key for key in re.split(r"[.\[\]]+", reference.path.rstrip("]"))]
        holder = functools.reduce(lambda part, key: part[key], path, document)
        holder[last] = holder[last].replace(reference.name, "nobody")
        problems = problems_of_names(document, {key: studies[key] for key in params.SHARED if key in studies})
        expected = f"{reference.path}: no 'nobody' in {' or '.join(reference.sections)} (there are: "
        assert any(problem.startswith(expected) for problem in problems), (expected, problems)


def test_a_model_that_a_derived_one_reads_as_data_has_to_be_there():
    raw = tiny_params(derived={"smaller": {"start": "bert", "on": "models/brt", "by": {"name": "truncated", "layers": 1}}})
    with pytest.raises(SesameError, match=r"derived.smaller.on: no 'brt' in models or checkpoints or derived"):
        params.check(raw)
