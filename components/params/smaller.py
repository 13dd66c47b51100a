"""Ways to make a model smaller: fewer layers, fewer heads and units, zeros."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from components.core.config import Count, DrawnSeed, Share, Threads
from components.models.common.config import ArchitectureBlock
from components.params.models import Objective
from components.params.ways import ITSELF, Way, check_shrinkable, with_changes


class Truncated(Way):
    """Some of the layers, as they are: the baseline of all ways to a smaller model (Sajjad et al. 2020)."""

    needs = ITSELF

    name: Literal["truncated"]
    layers: Count | Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    """The first so many, or which, the first is 0. Sajjad et al. find that those next to the text matter most."""

    @property
    def kept(self) -> list[int]:
        """The layers, from below."""
        return list(range(self.layers)) if isinstance(self.layers, int) else self.layers

    @model_validator(mode="after")
    def in_order(self):
        if self.kept != sorted(set(self.kept)):
            raise ValueError(f"layers {self.kept}: list each layer once, in ascending order")
        return self

    def architecture(self, start: ArchitectureBlock) -> ArchitectureBlock:
        check_shrinkable(self.name, start)
        if self.kept[-1] >= start.num_layers:
            raise ValueError(
                f"layers: layer {self.kept[-1]} does not exist; the model has {start.num_layers} layers, "
                f"0 to {start.num_layers - 1}"
            )
        if len(self.kept) == start.num_layers:
            raise ValueError(f"layers: these are all {start.num_layers} layers of the model, and nothing is left out; give fewer")
        return with_changes(start, {"num_layers": len(self.kept)} | layer_groups(start, self.kept))


def layer_groups(start: ArchitectureBlock, layers: list[int]) -> dict[str, int]:
    """What is said of layers that share: they go on, in groups that are as large as each other. Raises ValueError where they are not."""
    if not start.shares_weights:
        return {}
    size = start.num_layers // start.layer_groups
    of = [layer // size for layer in layers]
    if len({of.count(group) for group in of}) > 1:
        raise ValueError(f"layers {layers}: take equally many from each group of {size} layers that share weights")
    return {"layer_groups": len(set(of))}


class Scored(Way):
    """The pruned parts are those that matter least, by what the model has learned or by their size."""

    importance: Literal["gradient", "magnitude"] = "gradient"
    """`gradient`: how much the loss would change without it, to first order (Michel et al. 2019, equation 2); `magnitude`: the norm of its
    weights, for which no text is needed."""
    objective: Objective | None = None
    """For `gradient`: the objective whose loss is meant; copy that of the model's training."""
    tokens: Count = 100_000
    """For `gradient`: tokens of the training text that are read."""
    batch_size: Count = 32
    """Rows that are read at once."""
    seed: DrawnSeed
    """The seed of the rows that are drawn."""
    threads: Threads | None = 1
    """CPU threads of torch; null leaves torch's own choice."""

    @property
    def needs(self) -> str:
        return "encoded/<encoding>" if self.importance == "gradient" else ITSELF

    @model_validator(mode="after")
    def loss_of_something(self):
        if (self.objective is None) == (self.importance == "gradient"):
            raise ValueError(f"importance {self.importance} needs {'an' if self.objective is None else 'no'} objective")
        if self.importance == "magnitude":
            self.refuse_idle(["tokens", "batch_size"], "importance: magnitude reads no text")
        return self


class Pruned(Scored):
    """Parts taken out of every layer, as many of each: the matrices are smaller (structured pruning)."""

    name: Literal["pruned"]
    heads: Share = 0.0
    """The share of the attention heads of each layer that is removed."""
    feed_forward: Share = 0.0
    """The share of the inner units of each layer that is removed."""

    @model_validator(mode="after")
    def something_is_left(self):
        for part in ("heads", "feed_forward"):
            if getattr(self, part) == 1:
                raise ValueError(f"{part}: 1 removes everything; give a share below 1")
        if not self.heads and not self.feed_forward:
            raise ValueError("nothing is pruned: give heads or feed_forward")
        return self

    def architecture(self, start: ArchitectureBlock) -> ArchitectureBlock:
        check_shrinkable(self.name, start)
        change = {"intermediate_size": _left(self, "feed_forward", start.intermediate_size)}
        if self.heads:
            if start.positions not in ("learned", "sinusoidal"):
                raise ValueError(
                    f"heads can't be pruned with positions: {start.positions}, which belong to each "
                    "head; prune only feed_forward"
                )
            change |= {"num_heads": _left(self, "heads", start.num_heads), "head_size": start.heads_size // start.num_heads}
        return with_changes(start, change)


def _left(by: Pruned, part: str, count: int) -> int:
    """Of so many parts of a layer. Raises ValueError where the share comes to none, or to all."""
    share = getattr(by, part)
    left = count - round(share * count)
    if share and left in (0, count):
        raise ValueError(
            f"{part}: {share:g} of {count} removes {'nothing' if left else 'everything'}; give another share"
        )
    return left


class Sparsified(Way):
    """The smallest weights of the layers' matrices set to zero, wherever they are (unstructured pruning, Han et al. 2015). None is faster
    by it: dense kernels multiply zeros, too."""

    needs = ITSELF

    name: Literal["sparsified"]
    sparsity: Share
    """The share of the weights that is zero in the end."""
    scope: Literal["global", "local"] = "global"
    """The smallest of all layers, or of each matrix by itself."""

    @model_validator(mode="after")
    def something_is_left(self):
        if self.sparsity in (0, 1):
            what = "all weights" if self.sparsity else "no weight"
            raise ValueError(f"sparsity: {self.sparsity:g} sets {what} to zero; give a share between 0 and 1")
        return self

    def architecture(self, start: ArchitectureBlock) -> ArchitectureBlock:
        check_shrinkable(self.name, start)
        return start
