"""The stages of pre-training: pretrain, sample."""

from collections.abc import Iterator, Mapping

from components.params import Params
from components.stages.declaration import Entry, Stage, Table
from components.stages.parts import model_modules, training_modules


def models(p: Params) -> Iterator[Entry]:
    for name, model in p.models.items():
        modules = ("components.pretrain.__main__", *training_modules(p, model, model.architecture.name, model.encoding))
        yield Entry("pretrain", name, modules, model.settings())


def samples(p: Params) -> Iterator[Entry]:
    for name, model in p.main("models").items():
        objective = f"components.objectives.{model.objective.name}.objective"
        modules = ("components.pretrain.sample", objective, *model_modules(p, name))
        yield Entry("sample", name, modules, {"objective": model.objective.settings(), "prompts": model.prompts})


def table(metrics: Mapping[tuple[str, str], dict]) -> Table:
    """Return the table of pre-trained models, and of models derived by training on text."""
    rows = [
        [name, f"{measured['parameters']:,}", f"{measured['tokens']:,}", f"{measured['loss']:.3f}", f"{measured['perplexity']:.1f}",
         f"{measured['bits_per_byte']:.3f}", f"{measured['cost']['seconds']:.0f}"]
        for (_, name), measured in metrics.items() if "loss" in measured
    ]  # fmt: skip
    return Table(["model", "parameters", "tokens", "loss", "perplexity", "bits/byte", "seconds"], rows)


STAGES = (
    Stage("pretrain", models, "models/{0}", section="models", trains="text", table=table),
    Stage("sample", samples, "samples/{0}", section="models"),
)
