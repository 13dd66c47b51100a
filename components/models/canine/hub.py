"""The layout of CANINE in `transformers`.

Its output depends on the padding after a text: the authors always padded to 2048 positions. With a dozen positions of padding it equals
ours in any batch, except for texts that end with a block of the local layer (127 or 128 characters of 128, and so on): their last two
characters see a block of padding alone, which `transformers` averages over however many positions there are.
"""

from torch import Tensor
from torch.nn.functional import pad

from components.core.errors import SesameError
from components.models.canine.config import CanineArchitecture
from components.models.canine.model import PRIMES, Canine
from components.models.common.layout import BERT_SETTINGS, Layout

POSITIONS = "char_embeddings.char_position_embeddings.weight"


def _layer(ours: str, theirs: str) -> dict[str, str]:
    """Return the weights of a Transformer layer, for three stacks with different names."""
    layer = f"canine.{theirs}"
    return {
        f"{ours}.attention.query_key_value": " ".join(f"{layer}.attention.self.{kind}" for kind in ("query", "key", "value")),
        f"{ours}.attention.output": f"{layer}.attention.output.dense",
        f"{ours}.attention_norm": f"{layer}.attention.output.LayerNorm",
        f"{ours}.feed_forward.0": f"{layer}.intermediate.dense",
        f"{ours}.feed_forward.2": f"{layer}.output.dense",
        f"{ours}.feed_forward_norm": f"{layer}.output.LayerNorm",
    }


def cut_positions(weights: dict[str, Tensor], architecture: CanineArchitecture) -> dict[str, Tensor]:
    """Keep the first `max_position_embeddings` positions: theirs has as many as hash buckets, and reads only these."""
    return {name: value[: architecture.max_length] if name.endswith(POSITIONS) else value for name, value in weights.items()}


def pad_positions(weights: dict[str, Tensor], architecture: CanineArchitecture) -> dict[str, Tensor]:
    """Invert `cut_positions` with zeros. Raise SesameError if there are more positions than buckets."""
    if architecture.max_length > architecture.num_buckets:
        raise SesameError(
            f"architecture.max_length: {architecture.max_length} is more than num_buckets {architecture.num_buckets}, and transformers' "
            "canine has no more positions than hash buckets"
        )
    room = (0, 0, 0, architecture.num_buckets - architecture.max_length)
    return {name: pad(value, room) if name.endswith(POSITIONS) else value for name, value in weights.items()}


def check_hashes(config: dict) -> dict:
    """Raise SesameError for more hash functions than primes."""
    if isinstance(count := config.get("num_hash_functions"), int) and count > len(PRIMES):
        raise SesameError(f"config.json: num_hash_functions: {count} is not supported, at most {len(PRIMES)}")
    return config


def comparable_length(model: Canine, length: int) -> int:
    """Return the length of the longest beginning of a text whose last characters see no block of padding alone; else `length`."""
    width, rate = model.config.local_width, model.config.downsampling_rate

    def sees_padding_block(size: int) -> bool:
        last = ((size - 1 + rate // 2) // rate + 1) * rate  # after the last group that the convolutions read
        return size + -size % width < last

    return next((size for size in range(length, max(length - width, 2), -1) if not sees_padding_block(size)), length)


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
        settings_in=check_hashes,
        prepare=cut_positions,
        restore=pad_positions,
        code_points=True,
        padding_after=lambda model: 3 * model.config.downsampling_rate,
        comparable_length=comparable_length,
        first_differs=True,
        classes={None: "CanineModel"},
    ),
}  # fmt: skip
"""model_type in config.json -> its layout. Published checkpoints have no pre-training heads."""


def model_type(architecture: CanineArchitecture) -> str:
    return "canine"


FORM = ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", ["input_ids", "attention_mask", "token_type_ids"])
"""Templates of a text and a pair, and the inputs of the model."""
