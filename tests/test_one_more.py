"""A family and an objective that are new here, each one folder and one line, through pre-training and fine-tuning.

They are written as `components/models/__init__.py` and `components/objectives/__init__.py` say, and touch nothing else.
"""

import json
import shutil
from pathlib import Path
from textwrap import dedent

import pytest
from ruamel.yaml import YAML

from components import params
from tests.conftest import register, tiny_params

ROOT = Path(params.__file__).parents[2]

FAMILY = {
    "config": '''
        """Settings of the toy."""

        from typing import Literal

        from components.core.config import Size
        from components.models.common.config import ArchitectureBlock


        class Architecture(ArchitectureBlock):
            """Layers that each look at a token and at the mean of its text."""

            reads = "both_sides"
            has_sublayers = False

            name: Literal["mean"]
            hidden_size: Size
    ''',
    "model": '''
        """The toy."""

        import torch
        from torch import Tensor, nn

        from components.models.contract import LanguageModel
        from components.models.mean.config import Architecture
        from components.text.tokenizer import Tokenizer


        class Model(LanguageModel):
            stack = "steps"
            embeddings = frozenset({"token_embedding"})

            def __init__(self, config: Architecture, tokens: Tokenizer):
                super().__init__()
                self.width, self.num_layers, self.max_length = config.hidden_size, config.num_layers, config.max_length
                self.token_embedding = nn.Embedding(tokens.vocab_size, config.hidden_size)
                self.steps = nn.ModuleList(nn.Linear(2 * config.hidden_size, config.hidden_size) for _ in range(config.num_layers))
                self.output = nn.Linear(config.hidden_size, tokens.vocab_size)

            def layers(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None) -> list[Tensor]:
                states, real = [self.token_embedding(ids)], (torch.arange(ids.shape[1]) < lengths[:, None])[:, :, None]
                for step in self.steps:
                    mean = (states[-1] * real).sum(1, keepdim=True) / lengths[:, None, None]
                    states.append(states[-1] + torch.tanh(step(torch.cat([states[-1], mean.expand_as(states[-1])], 2))))
                return states

            def forward(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None) -> Tensor:
                return self.top(ids, lengths, segment_ids)

            def pool(self, hidden: Tensor, lengths: Tensor) -> Tensor:
                return hidden[:, 0]

            def logits(self, hidden: Tensor) -> Tensor:
                return self.output(hidden)
    ''',
}

OBJECTIVE = {
    "config": '''
        """Settings of the toy."""

        from typing import Literal

        from components.objectives.config import ObjectiveBlock


        class Objective(ObjectiveBlock):
            """Restores tokens that a generator of its own has replaced."""

            trains = ("both_sides",)
            samples_title = "restored"

            name: Literal["restore"]
            every: int = 4
    ''',
    "objective": '''
        """The toy: a network of the objective's own proposes tokens, the model says which were there."""

        import numpy as np
        import torch
        from torch import nn

        from components.objectives.contract import Objective as Contract
        from components.objectives.examples.segments import document_windows
        from components.objectives.examples.batches import Batch, Batches, Chunk
        from components.objectives.scoring import score
        from components.text.tokenizer import CLS, SEP


        class Spans(Batches):
            def __init__(self, text, batch_size, max_length, seed):
                self.text, self.batch_size, self.seed = text.shards[0], batch_size, seed
                self.spans = [(a, b) for a, b, *_ in document_windows(self.text, max_length) if b - a >= 8]

            def epoch_steps(self):
                return len(self.spans) // self.batch_size

            def tokens(self, step):
                return 10 * self.batch_size

            def bounds(self, step):
                return step, step + 1

            def draw(self, first, last):
                epoch, index = divmod(first, self.epoch_steps())
                order = np.random.default_rng([self.seed, epoch]).permutation(len(self.spans))
                chosen = order[index * self.batch_size : (index + 1) * self.batch_size]
                ids = [[CLS, *self.text.tokens[a : a + 8].tolist(), SEP] for a, _ in (self.spans[i] for i in chosen)]
                rows = {"ids": torch.tensor(ids), "lengths": torch.full((len(ids),), 10)}
                targets = 3.0 * len(ids)
                counts = {"tokens": 10.0 * len(ids), "restore": targets, "generator": targets, "bytes": targets}
                return Chunk.from_batches(first, [Batch(rows, counts)])


        class Objective(Contract):
            main = "restore"

            def __init__(self, config, tokens):
                self.config, self.byte_lengths, self.vocab_size = config, torch.from_numpy(tokens.byte_lengths), tokens.vocab_size

            def networks(self, model):
                self.generator = nn.Sequential(nn.Embedding(self.vocab_size, 4), nn.Linear(4, self.vocab_size))
                return {"generator": self.generator}

            def batches(self, text, batch_size, max_length, seed):
                return Spans(text, batch_size, max_length, seed)

            def losses(self, model, rows, carry):
                ids, places = rows["ids"], torch.arange(0, rows["ids"].shape[1], self.config.every)
                proposed = self.generator(ids.roll(1, 1)[:, places])
                changed = ids.clone()
                changed[:, places] = proposed.argmax(2)
                logits, labels = model.logits(model(changed, rows["lengths"])[:, places]), ids[:, places].flatten()
                parts = {"restore": logits, "generator": proposed}
                return {name: score(part.flatten(0, 1), labels, model.training) for name, part in parts.items()}, None

            def explain(self, batches, step):
                return [{"documents": "", "text": ""} for _ in batches[step].tensors["ids"]]

            def samples(self, model, text, prompts):
                return [{"prompt": prompt, "output": "restored"} for prompt in prompts]
    ''',
}


@pytest.fixture
def contributed(project) -> Path:
    """The tiny project with a copy of the code, and the toys in it."""
    (project / "components").unlink()
    shutil.copytree(ROOT / "components", project / "components", ignore=shutil.ignore_patterns("__pycache__"))
    for folder, files in (("models/mean", FAMILY), ("objectives/restore", OBJECTIVE)):
        path = project / "components" / folder
        path.mkdir()
        (path / "__init__.py").write_text('"""A toy."""\n')
        for name, text in files.items():
            (path / f"{name}.py").write_text(dedent(text).lstrip())
    registry = project / "components/params/models.py"
    register(registry, "ARCHITECTURES", name="mean")
    register(registry, "OBJECTIVES", name="restore")
    return project


def test_a_family_and_an_objective_are_a_folder_and_a_line_each(contributed, start):
    raw = tiny_params()
    toy = {"architecture": {"name": "mean", "num_layers": 2, "hidden_size": 16, "max_length": 32}, "prompts": ["anything"]}
    raw["models"] = {
        "toy": raw["models"]["bert"] | toy | {"objective": {"name": "restore"}},
        "toy_mlm": raw["models"]["bert"] | toy | {"objective": {"name": "mlm", "next_sentence": False}, "prompts": []},
    }
    raw["finetune"] |= {"models": ["toy"], "recipes": {"toy": raw["finetune"]["recipes"]["bert"] | {"layer_decay": 0.5}}, "seeds": [1]}
    raw |= {"studies": {}, "search": raw["search"] | {"models": []}}
    with open("params.yaml", "w") as file:
        YAML().dump(raw, file)

    said = ""
    for stage in ("pretrain toy", "pretrain.sample toy", "pretrain toy_mlm", "finetune toy-same", "stages.resolve all"):
        done = start("-m", *f"components.{stage}".split())
        said += done.communicate()[0]
        assert done.returncode == 0, said
    assert "anything  ->  restored" in said
    metrics = json.loads(Path("data/metrics/pretrain/toy.json").read_text())
    assert metrics["loss"] > 0 and metrics["generator_loss"] > 0 and metrics["perplexity"] > 1
    from safetensors.torch import load_file

    saved = load_file("data/models/toy/model.safetensors")
    assert not [name for name in saved if "generator" in name], "what is the objective's own is not saved"
    trained = json.loads(Path("data/metrics/pretrain/toy_mlm.json").read_text())
    assert trained["steps"] == 12, "an objective trains every family that reads as it needs"
    assert "pretrained seed 1: " in said and "data/resolved/" in said
    assert json.loads(Path("data/resolved/pretrain/toy.json").read_text())["settings"]["architecture"]["hidden_size"] == 16
