"""What a pre-trained model is held against: random weights and its token vectors alone, each at its own best; other examples a seed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from ruamel.yaml import YAML

from components import params, tasks
from components.core.errors import SesameError
from components.core.tracking import Run
from components.finetune import __main__ as finetune
from components.finetune import runs
from components.finetune.task_setup import TaskSetup
from components.models import store
from tests.conftest import save_random, tiny_params

STARTS = ["pretrained", "random", "token_vectors"]


def declared(model: str = "bert", **recipe) -> params.Params:
    raw = tiny_params()
    raw["finetune"] |= {"models": [model], "inits": STARTS}
    raw["finetune"]["recipes"] = {model: raw["finetune"]["recipes"]["bert"] | {"head": "mix", "pair": "apart"} | recipe}
    YAML().dump(raw, Path("params.yaml"))
    return params.check(raw)


@pytest.mark.parametrize(
    ("model", "recipe"), [("bert", {}), ("gpt", {"head": "decomposable_attention"}), ("elmo", {"method": "mix", "head": "pooled"})]
)
def test_each_start_is_scored_and_predicts(project, tokens, model, recipe):
    checked = declared(model, **recipe)
    save_random(checked, model, tokens)
    found = finetune.finetune(checked, f"{model}-same", Run(None))
    rows = [json.loads(line) for line in Path(f"data/scores/{model}/same/predictions.jsonl").read_text().splitlines()]
    assert {row["init"] for row in rows} == set(STARTS) and all(found[start]["test"]["accuracy"]["n"] == 2 for start in STARTS)


def test_token_vectors_are_those_of_the_model_wherever_they_stand(project, tokens):
    checked = declared()
    save_random(checked, "bert", tokens)
    setup, recipe = TaskSetup.load(checked, "same"), checked.finetune.recipes["bert"]
    model = setup.prepare(Path("data/models/bert"), recipe, 1, "token_vectors").module.model
    whole, _ = store.load(Path("data/models/bert"))
    ids = torch.tensor([[7, 8, 9, 10]])
    [read], [turned] = (model.layers(order, torch.tensor([4])) for order in (ids, ids.flip(1)))
    assert torch.equal(read, whole.token_embedding(ids)) and torch.equal(read, turned.flip(1)) and model.num_layers == 0
    assert store.count_parameters(model) == whole.token_embedding.weight.numel()


def test_another_start_takes_its_own_rate_and_scale(project, tokens):
    checked = declared(starts={"random": {"learning_rate": 0.02, "embedding_scale": 10.0}, "token_vectors": {"learning_rate": 0.01}})
    save_random(checked, "bert", tokens)
    recipe, setup = checked.finetune.recipes["bert"], TaskSetup.load(checked, "same")
    assert [recipe.of_start(start).learning_rate for start in STARTS] == [0.003, 0.02, 0.01]
    drawn = {
        scale: params.Recipe.model_validate(recipe.model_dump() | {"starts": {"random": {"embedding_scale": scale}}}) for scale in (1, 10)
    }
    one, ten = (setup.prepare(Path("data/models/bert"), own, 1, "random").module.model for own in drawn.values())
    assert torch.equal(one.token_embedding.weight * 10, ten.token_embedding.weight)
    assert torch.equal(one.position_embedding.weight, ten.position_embedding.weight)
    kept = setup.prepare(Path("data/models/bert"), drawn[10], 1).module.model
    assert torch.equal(kept.token_embedding.weight, store.load(Path("data/models/bert"))[0].token_embedding.weight), (
        "pre-trained: as they are"
    )


def test_each_seed_draws_its_training_examples_the_same_for_every_model(project):
    setup = TaskSetup.load(declared(), "same")
    drawn = {seed: [row.id for row in setup.for_seed(seed).examples["train"]] for seed in (1, 2)}
    assert len(drawn[1]) == len(drawn[2]) == 60 and set(drawn[1]) != set(drawn[2])
    assert drawn[1] == [row.id for row in TaskSetup.load(declared("gpt"), "same").for_seed(1).examples["train"]]
    assert setup.for_seed(1).examples["test"] is setup.examples["test"] and "60 labelled examples, others for each seed" in setup.protocol(
        declared().finetune.recipes["bert"]
    )


def test_complete_groups_are_drawn_up_to_the_declared_number(project):
    """As questions of a passage: each seed had as many as fitted into what another draw had come to."""
    setup = TaskSetup.load(declared(), "same")
    pool = [replace(row, group=f"passage {i // 9}") for i, row in enumerate(setup.train_pool)]
    pool = [row for i, row in enumerate(pool) if i % 9 < 4 + i // 9 % 6]  # passages of four to nine questions
    fewest = min((tasks.subset(pool, 60, seed) for seed in range(20)), key=len)
    grouped = replace(setup, train_pool=pool, examples=setup.examples | {"train": fewest})
    sizes = {len(grouped.for_seed(seed).examples["train"]) for seed in range(20)}
    assert len(fewest) < max(sizes) <= 60, sizes
    assert "; at most 60 labelled examples, others for each seed" in grouped.protocol(declared().finetune.recipes["bert"])


def test_dev_may_be_a_part_and_test_all(project):
    raw = tiny_params()
    raw["finetune"]["eval_examples"] = {"dev": 5}
    whole, part = TaskSetup.load(params.check(tiny_params()), "same"), TaskSetup.load(params.check(raw), "same")
    assert len(part.examples["dev"]) == 5 < len(whole.examples["dev"]) and len(part.examples["test"]) == len(whole.examples["test"])


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        ({"method": "bitfit"}, "method bitfit reads layers, and the start token_vectors has none; take one of full, "
                "features"),
        ({"starts": {"token_vectors": {"embedding_scale": 2}}}, "embedding_scale has no effect: the vectors are "
                "trained; "
                "leave "
                "it out"),
        ({"head": "pooled", "normalise_layers": False}, "normalise_layers has no effect under method full, head pooled: leave it out"),
    ],
)
def test_what_has_no_effect_is_refused(project, recipe, said):
    with pytest.raises(SesameError, match=said):
        declared(**recipe)


def without_pooler(tokens) -> None:
    """A BERT with weights that tell something, and a pooler that nothing has trained."""
    save_random(declared(), "bert", tokens)
    model, _ = store.load(Path("data/models/bert"))
    kept = {name: 8 * value for name, value in model.state_dict().items() if not name.startswith(("pooler", "next_sentence"))}
    store.save(Path("data/models/bert"), kept, declared().models["bert"].architecture, tokens, ["pooler", "next_sentence"])


def test_a_part_that_each_seed_draws_is_read_anew_for_each(project, tokens):
    """Else the head would learn on one seed's features and be judged on another's."""
    without_pooler(tokens)
    checked = declared(method="mix", head="pooled")
    setup, group = TaskSetup.load(checked, "same"), runs.InitRuns("pretrained", ["test"], {})
    cache, recipe = runs.InputCache(setup), checked.finetune.recipes["bert"]
    read = []
    for seed in (1, 2):
        prepared = setup.prepare(Path("data/models/bert"), recipe, seed)
        with torch.no_grad():
            prepared.module.model.blocks[0].attention.output.weight.mul_(seed)  # stands for what a seed draws
        read.append(cache.inputs(prepared, Path("data/models/bert"), group, seed)["test"].texts[0][0])
    assert not torch.equal(*read)


@pytest.mark.parametrize("method", ["sentence_probe", "cosine"])
def test_a_vector_that_nothing_has_trained_is_refused(project, tokens, method):
    without_pooler(tokens)
    recipe = declared().finetune.recipes["bert"].model_dump() | {"method": method, "head": "pooled"}
    setup = TaskSetup.load(declared(), "same")
    with pytest.raises(SesameError, match=f"method {method}: the model's pooler was not pre-trained; set vector: mean"):
        setup.prepare(Path("data/models/bert"), params.Recipe.model_validate(recipe), 1)
    assert setup.prepare(Path("data/models/bert"), params.Recipe.model_validate(recipe | {"vector": "mean"}), 1)
