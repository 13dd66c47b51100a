"""What all ways to derive a model have in common."""

from typing import Any, ClassVar

from pydantic import ValidationError

from components.core.config import Block
from components.models.common.config import SIZED, ArchitectureBlock
from components.params.messages import first

ITSELF = "models/<start>"
SMALLER = ("encoder", "decoder")
"""Families of which parts can be taken out."""


class Way(Block):
    """How a model is made of another one."""

    needs: ClassVar[str]
    """What it is done on, as under data/; ITSELF where it needs nothing but the model."""

    name: str

    def architecture(self, start: ArchitectureBlock) -> ArchitectureBlock:
        """The architecture of the model that is derived. Raises ValueError if this way does not suit the start."""
        return start


def check_shrinkable(by: str, start: ArchitectureBlock) -> None:
    """Raises ValueError for a family that can't be made smaller."""
    if start.name not in SMALLER:
        raise ValueError(f"{by} needs a model of architecture {' or '.join(SMALLER)}, and this one is {start.name}")


def with_changes(start: ArchitectureBlock, change: dict[str, Any]) -> ArchitectureBlock:
    """An architecture with other values. Raises ValueError where they don't fit each other."""
    meant = SIZED if change.get("size") else ()  # which is in place of these
    try:
        return type(start).model_validate({key: value for key, value in start.model_dump().items() if key not in meant} | change)
    except ValidationError as error:
        raise ValueError(first(error).lstrip(".: ")) from None
