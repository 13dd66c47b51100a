"""How `transformers` lays out CANINE.

What it makes of a text depends on the padding behind, as its authors had it, who filled 2048 places always: with a dozen places of padding
it is what ours computes in any batch. But for texts that end with a block of the local layer (127 or 128 characters of 128, and so on):
their last two characters see padding that has a block to itself, which theirs averages over as many places as there happen to be.
"""

from torch import Tensor
from torch.nn.functional import pad

from components.core.errors import SesameError
from components.models.canine.config import CanineArchitecture
from components.models.canine.model import PRIMES, Canine
from components.models.common.layout import BERT_SETTINGS, Layout

PLACES = "char_embeddings.char_position_embeddings.weight"


def _layer(own: str, theirs: str) -> dict[str, str]:
    """A layer of the Transformer, of three stacks that are called otherwise."""
    layer = f"canine.{theirs}"
    return {
        f"{own}.attention.query_key_value": " ".join(f"{layer}.attention.self.{part}" for part in ("query", "key", "value")),
        f"{own}.attention.output": f"{layer}.attention.output.dense",
        f"{own}.attention_norm": f"{layer}.attention.output.LayerNorm",
        f"{own}.feed_forward.0": f"{layer}.intermediate.dense",
        f"{own}.feed_forward.2": f"{layer}.output.dense",
        f"{own}.feed_forward_norm": f"{layer}.output.LayerNorm",
    }


def places_read(weights: dict[str, Tensor], architecture: CanineArchitecture) -> dict[str, Tensor]:
    """Theirs has as many rows of positions as hash buckets, and reads the first `max_position_embeddings`."""
    return {name: value[: architecture.max_length] if name.endswith(PLACES) else value for name, value in weights.items()}


def as_many_as_buckets(weights: dict[str, Tensor], architecture: CanineArchitecture) -> dict[str, Tensor]:
    """The inverse, zeros for those that are never read. Raises SesameError where there are more places than buckets."""
    if architecture.max_length > architecture.num_buckets:
        raise SesameError(
            f"architecture.max_length: {architecture.max_length} is more than num_buckets {architecture.num_buckets}, and transformers' "
            "canine has no more positions than hash buckets"
        )
    room = (0, 0, 0, architecture.num_buckets - architecture.max_length)
    return {name: pad(value, room) if name.endswith(PLACES) else value for name, value in weights.items()}


def hashed(config: dict) -> dict:
    """Raises SesameError where theirs has no prime for a hash function."""
    if isinstance(count := config.get("num_hash_functions"), int) and count > len(PRIMES):
        raise SesameError(f"config.json: num_hash_functions: {count} is not supported, at most {len(PRIMES)}")
    return config


def same_end(model: Canine, length: int) -> int:
    """Length of the longest beginning of a text whose last characters see no block of padding alone; all of it where
    there is none."""
    width, rate = model.config.local_width, model.config.downsampling_rate

    def apart(own: int) -> bool:
        last = ((own - 1 + rate // 2) // rate + 1) * rate  # behind the last group that the convolutions read
        return own + -own % width < last

    return next((own for own in range(length, max(length - width, 2), -1) if not apart(own)), length)


LAYOUTS = {
    "canine": Layout(
        "canine", "canine.",
        BERT_SETTINGS | {
            "num_hashes": "num_hash_functions", "num_buckets": "num_hash_buckets", "local_width": "local_transformer_stride",
            "downsampling_rate": "downsampling_rate upsampling_kernel_size",
        },
        {
            **{f"token_embedding.tables.{i}": f"canine.char_embeddings.HashBucketCodepointEmbedder_{i}" for i in range(len(PRIMES))},
            "position_embedding": "canine.char_embeddings.char_position_embeddings",
            "segment_embedding": "canine.char_embeddings.token_type_embeddings",
            "embedding_norm": "canine.char_embeddings.LayerNorm",
            **_layer("local", "initial_char_encoder.layer.0"),
            "down": "canine.chars_to_molecules.conv",
            "down_norm": "canine.chars_to_molecules.LayerNorm",
            **_layer("blocks.*", "encoder.layer.*"),
            "up": "canine.projection.conv",
            "up_norm": "canine.projection.LayerNorm",
            **_layer("last", "final_char_encoder.layer.0"),
            "pooler.0": "canine.pooler.dense",
        },
        tied={},
        settings_in=hashed,
        prepare=places_read,
        restore=as_many_as_buckets,
        code_points=True,
        behind=lambda model: 3 * model.config.downsampling_rate,
        same_end=same_end,
        first_apart=True,
        classes={None: "CanineModel"},
    ),
}  # fmt: skip
"""model_type in config.json -> its layout. Its checkpoints are of the body: what was predicted from it was thrown away."""


def written(architecture: CanineArchitecture) -> str:
    return "canine"


FORM = ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", ["input_ids", "attention_mask", "token_type_ids"])
"""A text, a pair, and what the model takes."""
