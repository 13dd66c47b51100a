"""What every block of `params.yaml` is made of."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer

from components.errors import without_secrets

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", description="lower case, digits, underscores")]
Share = Annotated[float, Field(ge=0, le=1)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="64 lower-case hex digits")]
Address = Annotated[str, PlainSerializer(without_secrets, when_used="json")]
"""An address of the web. Cards and the ledger take blocks as JSON, and so never see a password."""
Globs = Annotated[list[str], Field(min_length=1)]


class Block(BaseModel):
    """A block of `params.yaml`: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
