"""Two vector spaces brought together, words through several periods, and words of two groups of writers."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from components.core.config import (
    Block,
    CorpusName,
    Count,
    DrawnSeed,
    Name,
    Once,
    Refers,
    Share,
    Threads,
    VectorsName,
)
from components.params.dictionaries import Dictionary


class SelfLearning(Block):
    """Translate with the map, learn the map from these translations, and again (Artetxe et al. 2017 and 2018b).

    It ends when the mean best cosine has gained nothing for `patience` rounds, with all words to choose among.
    """

    retrieval: Literal["nn", "csls"] = "csls"
    """How translations are chosen: the nearest neighbour, or CSLS (Conneau et al. 2018, section 2.3)."""
    direction: Literal["forward", "union", "mutual"] = "union"
    """Which translations make the dictionary: of source words, of the words of both sides, or only pairs that are each other's best."""
    vocabulary: Count = 20_000
    """Most frequent words of either side that take part."""
    keep: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Share of the words of the other side, drawn again each round, to choose a translation among: drawing lets it
    leave a bad start. Doubled where nothing is gained, and all of them after a half at most."""
    patience: Count = 5
    """Rounds without a gain after which more words take part, or it ends."""
    threshold: Annotated[float, Field(ge=0)] = 1e-6
    """Gain of the mean best cosine that counts as one."""
    max_rounds: Count = 500
    """Rounds after which it ends in any case."""


Normalisation = Literal["unit", "centre"]


class Method(Block):
    """How two spaces are brought together, step by step in the frame of Artetxe et al. (2018a), and what it is learned from."""

    name: Name
    """The name of the method in tables."""
    normalise: list[Normalisation] = ["unit", "centre", "unit"]
    """The normalisation of all vectors, before anything else: length one, mean zero."""
    start: Literal["dictionary", "identical", "numerals", "similarity"] = "dictionary"
    """First pairs: the train dictionary's; words spelled alike; numerals; or, with no pairs at all, words whose similarities to the
    other words of their own language are alike (Artetxe et al. 2018b, section 3.2)."""
    seed_pairs: Count | None = None
    """Only so many of the first pairs, the most frequent ones or those listed first."""
    self_learning: SelfLearning | None = None
    """Whether the dictionary is learned, too; null: it is not."""
    map: Literal["procrustes", "least_squares", "rcsls"] = "procrustes"
    """A rotation (orthogonal Procrustes), any linear map (least squares, Mikolov et al. 2013), or one that maximises
    relaxed CSLS (Joulin et al. 2018)."""
    whiten: bool = False
    """Dimensions of either space are made uncorrelated and of variance 1 before the rotation."""
    reweight: tuple[Share, Share] = (0.0, 0.0)
    """Exponents of the singular values that the dimensions of source and target are weighted by: how well they agree."""
    dewhiten: bool = False
    """Whitening is undone after the rotation."""
    dimensions: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the dimensions that stays, those that agree best."""
    csls_k: Count = 10
    """Neighbours that count, wherever some do."""
    neighbours_among: Count = 20_000
    """Words of either side among which RCSLS looks for them."""
    seed: DrawnSeed
    """The seed of the random draws in self-learning."""

    @model_validator(mode="after")
    def steps_fit_each_other(self):
        if self.map != "procrustes" and (self.whiten or self.dewhiten or self.reweight != (0.0, 0.0)):
            raise ValueError(
                f"whiten, reweight and dewhiten need a rotation, map: procrustes, and map is {self.map}; leave them out"
            )
        if self.map != "procrustes" and self.dimensions != 1:
            raise ValueError(f"dimensions needs a rotation, map: procrustes, and map is {self.map}; leave it out")
        if self.dewhiten and not self.whiten:
            raise ValueError("dewhiten has no effect: whiten is off; set whiten: true, or leave dewhiten out")
        if self.map != "rcsls":
            self.refuse_idle(["neighbours_among"], f"it is for map: rcsls, and map is {self.map}")
        learned = self.self_learning and (self.self_learning.retrieval == "csls" or self.start == "similarity")
        if self.map != "rcsls" and not learned:
            why = "no step of this method uses neighbours, and translations have the csls_k of the alignment"
            self.refuse_idle(["csls_k"], why)
        if self.start == "similarity" and self.self_learning is None:
            raise ValueError("start: similarity finds too few correct pairs by itself; set self_learning")
        return self


REFINED = {"patience": 1, "keep": 1.0}
PRESETS: dict[str, dict[str, Any]] = {
    "mikolov_2013": {"normalise": [], "map": "least_squares"},
    "xing_2015": {"normalise": ["unit"]},
    "faruqui_2014": {"normalise": ["unit", "centre"], "whiten": True, "dimensions": 0.5},
    "artetxe_2016": {"normalise": ["unit", "centre"]},
    "smith_2017": {"normalise": ["unit"], "dimensions": 0.8},
    "artetxe_2017": {"normalise": ["unit", "centre"], "self_learning": REFINED | {"retrieval": "nn", "direction": "forward"}},
    "conneau_2018": {"normalise": ["unit"], "self_learning": REFINED | {"direction": "mutual", "max_rounds": 5}},
    "joulin_2018": {"normalise": ["unit", "centre", "unit"], "map": "rcsls"},
    "artetxe_2018a": {"whiten": True, "reweight": [0.5, 0.5], "dewhiten": True},
    "artetxe_2018b": {"whiten": True, "reweight": [0.5, 0.5], "dewhiten": True, "self_learning": {}},
}
"""Methods by the paper that each is of; docs/spaces.md says where ours differ."""


def _preset(raw: Any) -> Any:
    """A preset's name, or a block with one under `preset`, as a whole block."""
    raw = {"preset": raw} if isinstance(raw, str) else raw
    if not isinstance(raw, dict) or "preset" not in raw:
        return raw
    given = {key: value for key, value in raw.items() if key != "preset"}
    if not isinstance(raw["preset"], str) or raw["preset"] not in PRESETS:
        raise ValueError(f"no preset {raw['preset']!r} (there are: {', '.join(PRESETS)})")
    preset = {"name": raw["preset"]} | PRESETS[raw["preset"]]
    if isinstance(given.get("self_learning"), dict):  # merged into that of the preset, field by field
        given["self_learning"] = preset.get("self_learning", {}) | given["self_learning"]
    return preset | given


class Preset(Method):
    """A method from a paper with some settings changed; those that are not given are the preset's (docs/spaces.md)."""

    # editors check a block with `preset` by it; `_preset` makes a Method of that, whose defaults are not the preset's
    model_config = ConfigDict(json_schema_extra=lambda schema: [key.pop("default", None) for key in schema["properties"].values()])

    preset: Literal[tuple(PRESETS)]
    """The paper that the method is of (docs/spaces.md)."""
    name: Name | None = None
    """The name of the method in tables; null: the preset's."""


Methods = Annotated[
    list[Annotated[Method, BeforeValidator(_preset, json_schema_input_type=Literal[tuple(PRESETS)] | Preset | Method)]], Field(min_length=1)
]


class SeedCurve(Block):
    """P@1 against the size of the seed dictionary: every method from the first so many train pairs."""

    methods: Methods
    """As in the alignment: presets by their name, or blocks."""
    seed_pairs: Annotated[list[Count], Field(min_length=2)]
    """Sizes of the seed dictionary, in source words."""

    @model_validator(mode="after")
    def methods_have_pairs(self):
        if self.seed_pairs != sorted(set(self.seed_pairs)):
            raise ValueError(f"seed_pairs {self.seed_pairs}: list each number once, in ascending order")
        if without := [method.name for method in self.methods if method.start == "similarity"]:
            raise ValueError(
                f"methods: {without[0]} uses no seed pairs, and the curve varies their number; leave it out"
            )
        return self


class Alignment(Block):
    """Two spaces brought together by several methods, and how well each finds translations."""

    source: VectorsName
    """The name of an entry of `vectors`, `published_vectors` or `contextual_vectors`: the space that is mapped."""
    target: VectorsName
    """The space that it is mapped onto."""
    dictionary: Dictionary
    """Pairs that the mapping is learned from, and pairs that are asked for."""
    methods: Annotated[Methods, Field(validate_default=True)] = ["xing_2015"]  # type: ignore[list-item]
    """Presets by their name, or blocks: `{preset: artetxe_2018b, name: numerals, start: numerals}`."""
    retrievals: Annotated[list[Literal["nn", "csls", "inverted_softmax"]], Field(min_length=1), Once] = ["nn", "csls"]
    """By which translations are chosen: nearest neighbour, CSLS (Conneau et al. 2018) or inverted softmax (Smith et al.
    2017)."""
    csls_k: Count = 10
    """Neighbours that CSLS takes the mean over (Conneau et al. 2018: 10)."""
    curve: SeedCurve | None = None
    """P@1 against the size of the seed dictionary; null: none."""
    max_vocabulary: Count = 20000
    """Most frequent words of each space that take part."""
    controls: Annotated[list[Annotated[Name, Refers(("alignments",))]], Once] = []
    """Alignments of two disjoint halves of one period, several splits of it, each of as much text as these spaces: how far words move
    without time having passed (Dubossarsky et al. 2017). Two seeds on the same text say nothing of other text."""
    seed: DrawnSeed
    """The seed of the train and test words that are drawn."""
    threads: Threads = 1
    """More are faster, and the last digits of sums depend on their number."""

    @model_validator(mode="after")
    def two_spaces(self):
        if self.source == self.target:
            raise ValueError("source and target are the same space; name two different ones")
        return self

    @model_validator(mode="after")
    def names_differ(self):
        for place, methods in (("methods", self.methods), ("curve.methods", self.curve.methods if self.curve else [])):
            names = [method.name for method in methods]
            if twice := [name for name in names if names.count(name) > 1]:
                raise ValueError(f"{place}: {twice[0]!r} is listed twice; give one of them another `name`")
        return self

    @model_validator(mode="after")
    def neighbours_are_asked_for(self):
        if "csls" not in self.retrievals:
            self.refuse_idle(["csls_k"], "retrievals lack csls")
        return self

    @model_validator(mode="after")
    def curve_has_pairs(self):
        train = getattr(self.dictionary, "train", None)
        if self.curve and isinstance(train, int) and (most := max(self.curve.seed_pairs)) > train:
            raise ValueError(f"curve.seed_pairs: {most} are more than dictionary.train, {train}")
        return self


class Shift(Block):
    """What is known of a word's history: what it comes to be used like, and no longer."""

    towards: list[str] = []
    """Words that it moves towards."""
    away: list[str] = []
    """Words that it moves away from."""

    @model_validator(mode="after")
    def something_is_known(self):
        if not self.towards + self.away:
            raise ValueError("no words; name words that it moves towards, or away from")
        if both := next((word for word in self.towards if word in self.away), None):
            raise ValueError(f"{both!r} is in towards and in away; leave one out")
        return self


class History(Block):
    """The spaces of several periods brought into one, and what becomes of words in it (Hamilton et al. 2016)."""

    periods: Annotated[list[VectorsName], Field(min_length=2), Once]
    """Names of `vectors` or `contextual_vectors`, the earliest first."""
    onto: Literal["next", "last"] = "next"
    """Each period is rotated onto the one after it, over all steps onto the last; or onto the last at once."""
    anchors: Count = 3000
    """Words of both periods that a rotation is learned from, the most frequent of the earlier one."""
    min_count: Count = 50
    """Times a word must occur in every period to be listed."""
    words: Annotated[list[Annotated[str, Field(min_length=1)]], Once] = []
    """Drawn in the picture, each with its neighbours then and now."""
    known: dict[str, Shift] = {}
    """Word -> its shift: whether the spaces show it."""

    @model_validator(mode="after")
    def words_move_elsewhere(self):
        for word, shift in self.known.items():
            if word in shift.towards + shift.away:
                raise ValueError(f"known.{word}: it moves towards or away from itself; name other words")
        return self


class Groups(Block):
    """Words that two sets of writers use differently, compared with random divisions of all their documents into two
    such sets.

    A word's vector is its row of positive pointwise mutual information with the words around it, as `ppmi_svd` counts them: both sets
    have the same contexts for dimensions, and nothing needs to be aligned. Every division makes both spaces again.
    """

    first: CorpusName
    """A corpus or a mix."""
    second: CorpusName
    """A corpus or a mix, to be compared with the first."""
    max_words: Count | None = None
    """The number of words of either text, in whole documents drawn at random; the others are left out."""
    window: Annotated[int, Field(ge=1, le=1000)] = 5
    """Words to each side that count as context."""
    max_vocabulary: Count = 10_000
    """Most frequent words, which are the contexts."""
    context_smoothing: Share = 0.75
    """Exponent of the context counts, so that rare contexts don't dominate (Levy, Goldberg and Dagan 2015: 0.75)."""
    min_count: Count = 30
    """Times a word must occur in both."""
    permutations: Annotated[int, Field(ge=19, le=100_000)] = 199
    """Deals of the documents; with 19 the smallest p is .05."""
    seed: DrawnSeed
    """The seed of the permutations."""

    @model_validator(mode="after")
    def two_sets(self):
        if self.first == self.second:
            raise ValueError("first and second are the same text; name two different ones")
        return self
