"""What every block of `params.yaml` is made of."""

from typing import Annotated

from pydantic import AfterValidator, AnyHttpUrl, BaseModel, ConfigDict, Field, PlainSerializer, TypeAdapter

from components.errors import without_secrets

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=100, description="lower case, digits, underscores")]
Count = Annotated[int, Field(gt=0, le=10**15, description="how many")]
Size = Annotated[int, Field(gt=0, le=2**40, description="a dimension of a model or a machine")]
"""The bounds are where a number can only be a slip of the finger; whether there is memory and time for it, `sesame plan` estimates."""
Seed = Annotated[int, Field(ge=0, lt=2**32, description="below 2**32, the most that numpy takes")]
Threads = Annotated[int, Field(gt=0, le=1024)]
Share = Annotated[float, Field(ge=0, le=1)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="64 lower-case hex digits")]


def _of_the_web(address: str) -> str:
    WEB.validate_python(address)
    return address  # as it was written


WEB = TypeAdapter(AnyHttpUrl)
Address = Annotated[str, AfterValidator(_of_the_web), PlainSerializer(without_secrets, when_used="json")]
"""An address of the web. Cards and the ledger take blocks as JSON, and so never see a password."""
Globs = Annotated[list[str], Field(min_length=1)]


class Block(BaseModel):
    """A block of `params.yaml`: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)
