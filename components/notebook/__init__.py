"""Models and scores from Python, for notebooks (docs/python.md). Nothing is written."""

import hashlib
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from components.core.errors import SesameError
from components.core.frames import read_csv
from components.evaluations.minimal_pairs import scoring
from components.finetune.tuned import TunedModel
from components.models import holes, store
from components.tasks import Example


class Loaded:
    """A model with its tokenizer, in evaluation mode."""

    def __init__(self, folder: Path):
        """Raises SesameError where the folder has no model."""
        model, self.tokenizer = store.load(folder)
        self.folder = folder
        self.model, self.name, self.reads = model.eval(), folder.name, store.about(folder).architecture.reads

    def ids(self, text: str) -> list[int]:
        """The model's input for a text, with special tokens. Raises SesameError where it is no text, or longer than the model reads."""
        if not isinstance(text, str):
            raise SesameError(f"a text is expected, and {text!r} is {type(text).__name__}")
        ids = [*self.tokenizer.prefix, *self.tokenizer.encode([text])[0], *self.tokenizer.suffix]
        if len(ids) > self.model.max_length:
            raise SesameError(
                f"the text has {len(ids)} tokens, and {self.name} reads {self.model.max_length}: cut it into several"
            )  # fmt: skip
        return ids

    @torch.no_grad()
    def hidden_states(self, text: str) -> Tensor:
        """The embedding and every layer's output at each token, including special tokens: (layers + 1, tokens, width)."""
        ids = self.ids(text)
        return torch.stack(self.model.layers(torch.tensor([ids]), torch.tensor([len(ids)])))[:, 0]

    @torch.no_grad()
    def vector(self, text: str) -> Tensor:
        """The last layer's mean over the tokens, including special tokens: (width,)."""
        ids = self.ids(text)
        return self.model.top(torch.tensor([ids]), torch.tensor([len(ids)]))[0].mean(0)

    def log_probability(self, text: str) -> float:
        """The log-probability of a text's tokens in nats, without special tokens.

        Left to right: of each token given those before it (of the first only with a start token). Both sides: the
        pseudo-log-likelihood, each token masked on its own (Salazar et al. 2020). ELMo: the mean of its two models.
        Raises SesameError for models that predict no token, or only from another text.
        """
        self.ids(text)  # raises for a text that is too long
        protocol = "pll_original" if holes.predicts(self.model) else "log_probability"
        return float(scoring.score(self.model, self.tokenizer, [text], protocol, self.name).log_probability[0])

    @cached_property
    def tuned(self) -> TunedModel:
        """The model with its task head."""
        return TunedModel(self.folder)

    def predict(self, text: str, second: str | None = None) -> dict[str, Any]:
        """The prediction of a model that was tuned on a task (`derived`, `by: tuned`) for a text or a pair.

        `prediction` is a label, a score or an answer of the task; a classification also has `probabilities` by label.
        The words of a tagging task are those between blanks. Raises SesameError for a model without a task head, one text
        where the task has two, or a task of choices.
        """
        tuned = self.tuned
        if tuned.task.kind == "choice":
            raise SesameError(
                f"{self.name} was tuned on {tuned.name}, whose examples have choices of their own: a text alone has none"
            )  # fmt: skip
        if (second is not None) != tuned.pair:
            raise SesameError(f"{self.name} was tuned on {tuned.name}, which has {'two texts' if tuned.pair else 'one text'}")
        words = text.split() if tuned.task.kind == "tagging" else None
        [value], logits = tuned.predict([Example("", " ".join(words) if words else text, second, None, words=words)])
        if logits is None:
            return {"prediction": value}
        shares = torch.tensor(logits[0]).softmax(0).tolist()
        return {"prediction": value, "probabilities": dict(zip(tuned.task.labels, shares, strict=True))}


def code_digest() -> str:
    """A digest of the sources on disk of the package that this process has imported."""
    package, digest = Path(__file__).parents[1], hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        digest.update(f"{file.relative_to(package)}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def load(name: str, project: Path | str = ".") -> Loaded:
    """A model of data/models by its name. Raises SesameError where it does not exist."""
    if not isinstance(name, str) or not name:
        raise SesameError(f"the name of a model of data/models is expected, not {name!r}")
    return Loaded(Path(project, "data/models", name))


def scores(table: str = "scores", project: Path | str = ".") -> pd.DataFrame:
    """A table of data/report: scores, pretraining, costs, alignment ... Raises SesameError where it does not exist."""
    folder = Path(project, "data/report")
    if not (folder / f"{table}.csv").exists():
        there = ", ".join(sorted(path.stem for path in folder.glob("*.csv"))) or "none: `sesame run report` writes them"
        raise SesameError(f"{folder}: no table {table!r} (there are: {there})")
    return read_csv(folder / f"{table}.csv")
