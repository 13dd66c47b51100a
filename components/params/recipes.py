"""How a model is adapted to a task: the method, and its hyperparameters."""

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, model_validator

from components.core.config import Added, Block, Count, Dropout, LearningRate, Positive, Share, Size
from components.optimizers.config import WeightDecay, check_fall

METHODS = (
    "full", "bitfit", "adapters", "lora", "prompt", "features", "mix", "linear_probe", "sentence_probe", "cosine", "text_to_text",
    "in_context", "early_exit", "decomposable_attention"
)  # fmt: skip
"""Files of `components.finetune.methods`. One more way to adapt is one more file and its name here, and below where that is so."""
ATTACHED = ("adapters", "lora")
"""Those that go into a Transformer's layers."""
FROZEN = ("features", "mix", "decomposable_attention", "linear_probe", "sentence_probe", "cosine")
"""Those that read the texts through the model once, and never backward."""
TUNED = ("full", "bitfit", "adapters", "lora", "prompt")
"""Those that run the model in every step, under the recipe's `head`."""
MIXING = ("features", "mix", "decomposable_attention", "linear_probe")
"""Methods and heads that read layers as `normalise_layers` says."""
ONE_LAYER = ("linear_probe", "sentence_probe", "cosine")
"""Those that read `layer`."""
IN_WORDS = {"text_to_text": ("classification", "regression", "choice", "extraction", "text"), "in_context": ("classification", "choice")}
"""Those that put a task in words, for models that write -> the kinds of tasks that they can put so."""
IDLE = {
    "text_to_text": ("pair", "head", "class_weights", "temperature_scaling"),
    "early_exit": ("head", "temperature_scaling"),
    "prompt": ("layer_decay", "gradual_unfreezing"),
    **dict.fromkeys(FROZEN, ("head", "layer_decay", "gradual_unfreezing")),
    "in_context": (
        "pair", "head", "class_weights", "label_smoothing", "patience", "layer_decay", "gradual_unfreezing", "temperature_scaling",
    ),
}  # fmt: skip
"""Settings that have no effect under a method: all of an example is in one prompt, there is no head, or no layer of the
model learns."""
OWN = {
    "bottleneck": ("adapters",), "rank": ("lora",), "alpha": ("lora",), "prompt_length": ("prompt",),
    "target_length": ("text_to_text",), "layer": ONE_LAYER, "vector": ("sentence_probe", "cosine"),
    "exits": ("early_exit",), "shots": ("in_context",), "calibrated": ("in_context",),
}  # fmt: skip
"""Settings that only some methods have -> these."""
OF_CLASSES = {
    "label_smoothing": ("classification", "tagging", "text"), "class_weights": ("classification", "tagging"),
    "temperature_scaling": ("classification",),
}  # fmt: skip
"""Settings of a recipe -> the kinds of task on which they have an effect."""


def has_effect(name: str, method: str) -> bool:
    """Whether a setting of a recipe has an effect under a method, whatever its other settings."""
    return name not in IDLE.get(method, ()) and method in OWN.get(name, (method,))


class Start(Block):
    """Settings of the tuning from a start other than the pre-trained weights, in place of the recipe's."""

    learning_rate: LearningRate | None = None
    """Null: that of the recipe."""
    embedding_scale: Positive = 1.0
    """`random`: the token vectors are multiplied by it. Drawn as small as positions are (deviation .02), they hide which word stands
    where."""


class Recipe(Block):
    """How a model is adapted to a task."""

    method: Literal[METHODS]
    """Which weights learn. `full`: all. `bitfit`: the biases. `adapters`: bottlenecks added to each layer. `lora`:
    low-rank updates of the matrices. `prompt`: vectors before the text. No weight of the model, and on top: `features`
    a biLSTM with attention, `mix` the mean of the mixed layers, `decomposable_attention` a comparison token by token,
    `linear_probe` the mean of one layer, `sentence_probe` one vector of each text, `cosine` the cosine of two such
    vectors. `text_to_text`: all, and the model writes its answer (T5, Raffel et al. 2020). `in_context`: none; the
    likeliest answer after a prompt with examples (GPT-3, Brown et al. 2020). `early_exit`: all, with a classifier on
    several layers (Schwartz et al. 2020)."""
    learning_rate: LearningRate
    """Highest learning rate of AdamW, reached after the warm-up. BERT's authors try 2e-5 to 5e-5 for all weights
    (Devlin et al. 2019, appendix A.3); small models and heads alone take more, 1e-4 to 1e-3."""
    epochs: Size
    """Passes over the training examples; BERT: 2 to 4."""
    batch_size: Count
    """Examples per step; BERT: 16 or 32."""
    schedule: Literal["linear", "cosine", "constant", "slanted_triangular"] = "linear"
    """`slanted_triangular`: linear to 1/32 of the full rate (Howard and Ruder 2018, equation 3)."""
    warmup: Share = 0.1
    """Share of the steps in which the learning rate rises linearly from 0."""
    weight_decay: WeightDecay = 0.01
    """AdamW's, of matrices; biases and norms have none (Loshchilov and Hutter 2019; BERT: 0.01)."""
    dropout: Dropout = 0.1
    """Probability with which a number is set to 0 in training, below the head and in the updates of `lora` (BERT: 0.1).
    The model keeps the dropout of its architecture, and nothing else has any: `text_to_text`, `sentence_probe`, `cosine`,
    `in_context`."""
    max_length: Annotated[int, Field(ge=8, le=2**40)] = 64
    """Tokens; longer inputs are cut and counted."""
    layer_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Each layer below the top one learns so many times slower (ULMFiT: 1 / 2.6 = 0.385)."""
    gradual_unfreezing: bool = False
    """The head alone learns in the first epoch, a layer more in each that follows (Howard and Ruder 2018, section 3.3)."""
    patience: NonNegativeInt | None = None
    """Keep the epoch that is best on dev, and stop when more epochs than so many follow it without a gain: 0 stops at the
    first (Keras and Lightning stop at so many). null: the last of `epochs` counts."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the target's probability that is spread over all classes (Szegedy et al. 2016)."""
    class_weights: Literal["balanced"] | None = None
    """`balanced`: a class weighs by the inverse of its frequency.
    This and smoothing are for classification and tagging; other kinds have no classes."""
    temperature_scaling: Annotated[bool, Added(neutral=False)] = False
    """Classification: logits are divided by what makes dev's labels likeliest, so that probabilities can be believed (Guo et al. 2017); no
    prediction changes. Those of dev itself are each of one half divided by what fits the other."""
    pair: Literal["joined", "apart"] = "joined"
    """The two texts of a pair: one input of two segments, or read one by one and compared by the head as [u, v, |u - v|, u * v].
    Models are compared with each other under the same: apart, it does not matter whether pre-training has met pairs. (Choices,
    answers and tags are always read in one input.)"""
    head: Literal["pooled", "mix", "decomposable_attention", "bilstm", "concat"] = "pooled"
    """On a model that is not frozen: a linear layer on its pooled output; one on the mean over the tokens of its mixed layers, as
    under the method `mix`; or, of texts read apart, a comparison of each token of its mixed layers with what it attends to in the other
    text (Parikh et al. 2016; what is read in one input as under `mix`); or a biLSTM with attention over its top layer, as on the
    left-to-right model of Devlin et al. 2019, table 5; or ULMFiT's block on the pooled output, the maximum and the mean over the tokens
    (Howard and Ruder 2018, section 3.3)."""
    hidden_size: Size = 128
    """Width of the biLSTM, of `features` and of `head: bilstm`; of the comparison of `decomposable_attention`, method and head; of the
    block of `head: concat` (50 in the paper)."""
    normalise_layers: Annotated[bool, Added(neutral=False)] = True
    """Each token's vector of each layer is normalised before layers are mixed or one is read: `features`, `mix`,
    `decomposable_attention`, `linear_probe`, `sentence_probe`, `cosine`, and `head: mix | decomposable_attention` (Peters et al. 2018,
    section 3.2). Without it the scale of first weights decides how models compare."""
    starts: Annotated[dict[Literal["random", "token_vectors"], Start], Added(neutral={})] = {}
    """Settings that replace the recipe's for a start other than the pre-trained weights, so that each start is compared
    at its own best, found with the same effort."""
    layer: int = -1
    """`linear_probe`, and `vector: mean`: 0 is the embedding, -1 the top layer."""
    vector: Annotated[Literal["pooled", "mean"], Added(neutral="pooled")] = "pooled"
    """`sentence_probe`, `cosine`: the model's own vector of a text, or the mean over the tokens of `layer`."""
    bottleneck: Size = 16
    """`adapters`: width."""
    rank: Size = 8
    """`lora`."""
    alpha: Positive = 16.0
    """`lora`: the update is scaled by alpha / rank."""
    prompt_length: Size = 10
    """`prompt`: vectors."""
    target_length: Annotated[Size, Added(neutral=32)] = 32
    """`text_to_text`: tokens of an answer at most, in training and as it is written, the likeliest one each time; longer ones are cut and
    counted as lost."""
    shots: Annotated[Annotated[int, Field(ge=0)], Added(neutral=0)] = 0
    """`in_context`: labelled examples in the prompt, drawn from the training split by the seed."""
    calibrated: Annotated[bool, Added(neutral=False)] = False
    """For `in_context`: subtract the label probabilities of prompts without content (Zhao et al. 2021)."""

    exits: Annotated[list[Annotated[int, Field(ge=1)]], Added(neutral=[])] = []
    """For `early_exit`: the layers that get a classifier, counted from 1; the last always has one. Default: all
    layers."""

    @model_validator(mode="after")
    def parts_fit(self):
        check_fall(self.schedule, self.warmup)
        if self.exits != sorted(set(self.exits)):
            raise ValueError(f"exits {self.exits}: list each layer once, in ascending order")
        if self.method in ("sentence_probe", "cosine") and self.vector == "pooled" and self.layer != -1:
            raise ValueError(
                f"layer {self.layer}: vector: pooled is of the last layer; take vector: mean, or leave layer out"
            )
        if self.pair == "joined" and "decomposable_attention" in (self.method, self.head):
            raise ValueError(
                "decomposable_attention needs two separate texts, and pair: joined makes one; set pair: apart"
            )
        if self.head == "concat" and self.method not in FROZEN and self.batch_size == 1:
            raise ValueError("head concat normalises over the batch, which needs more than one example: raise batch_size")
        if idle := [name for name in IDLE.get(self.method, ()) if self.differs(name)]:
            raise ValueError(f"{idle[0]} has no effect under method {self.method}: leave it out")
        for name, methods in OWN.items():
            if self.method not in methods and self.differs(name):
                why = f"it needs {' or '.join(methods)}"
                raise ValueError(f"{name} has no effect with method {self.method}: {why}; leave it out")
        if not self.normalise_layers and not self.mixes:
            raise ValueError(f"normalise_layers has no effect under method {self.method}, head {self.head}: leave it out")
        if "token_vectors" in self.starts and self.starts["token_vectors"].embedding_scale != 1:
            raise ValueError(
                "starts.token_vectors.embedding_scale has no effect: the vectors are trained; leave it out"
            )
        return self

    def under(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """What it hands to a recipe that lays `settings` over it: to another method, not what only its own one has."""
        method = settings.get("method", self.method)
        fields = self.model_dump(exclude_unset=True)
        return {key: value for key, value in fields.items() if method in OWN.get(key, (method,))}

    def drawn(self, settings: Mapping[str, Any]) -> "Recipe":
        """The recipe with `settings` laid over it, as a search draws them; what has no effect under its method is left out.
        Raise ValidationError where they do not go together."""
        method = settings.get("method", self.method)
        fields = self.model_dump(exclude_unset=True) | settings
        return Recipe.model_validate({key: value for key, value in fields.items() if has_effect(key, method)})

    def of_start(self, init: str) -> "Recipe":
        """The recipe for a start: `pretrained`, `random`, `token_vectors`."""
        start = self.starts.get(init)
        return self.model_copy(update={"learning_rate": start.learning_rate}) if start and start.learning_rate else self

    def embedding_scale(self, init: str) -> float:
        """The factor by which token vectors are multiplied before training."""
        return self.starts[init].embedding_scale if init in self.starts else 1.0

    @property
    def mixes(self) -> str:
        """The method or the head that mixes layers; empty where none does."""
        used = (self.method, self.head) if self.method in TUNED else (self.method,)
        return next((name for name in used if name in MIXING), "")

    def idle(self, kinds: Collection[str]) -> str | None:
        """A setting that has no effect on any task of these kinds, and what it needs."""
        if self.method == "text_to_text":
            return None  # learns words, whatever the task
        for name, able in OF_CLASSES.items():
            if self.differs(name) and not set(kinds) & set(able):
                return f"{name} has no effect: it needs a task of kind {' or '.join(able)}"
        return None
