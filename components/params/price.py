"""Prices of hours of devices and of kWh: rents, and the carbon intensity of grids. Only the report depends on it."""

from typing import Annotated

from pydantic import Field, model_validator

from components.core.config import Block

Country = Annotated[str, Field(pattern=r"^[A-Z]{3}$", description="three capital letters of ISO 3166")]
Intensity = Annotated[float, Field(ge=0, le=5)]
USD = Annotated[float, Field(ge=0, le=1e4)]


class Rent(Block):
    """USD for an hour of a device."""

    on_demand: USD
    """USD an hour, for a machine that nobody takes away."""
    preemptible: USD
    """Where the machine may be taken away: what a run costs that can go on later."""
    source: str
    """Where both are from, and of when."""

    @model_validator(mode="after")
    def is_a_range(self):
        if self.preemptible > self.on_demand:
            raise ValueError(f"preemptible {self.preemptible:g} is more than on_demand {self.on_demand:g}: are they swapped?")
        return self


class Price(Block):
    """The price of a run: rents and CO2e. The energy is that of `energy`, with its PUE."""

    country: Country
    """The country of the grid that it runs on."""
    core_hour: Rent
    """The rent of a CPU core."""
    gpu_hour: Rent
    """The rent of a GPU with its host, whose cores are not counted again."""
    kg_per_kwh: Annotated[dict[Country, Intensity], Field(min_length=1)]
    """kg of CO2e for a kWh, by country."""
    intensity_source: str
    """Where these are from, and of when."""

    @property
    def intensity(self) -> float:
        """kg of CO2e for a kWh here."""
        return self.kg_per_kwh[self.country]

    @model_validator(mode="after")
    def country_is_known(self):
        if self.country not in self.kg_per_kwh:
            known = ", ".join(self.kg_per_kwh)
            raise ValueError(f"country {self.country} has no intensity; add its kg CO2e per kWh to kg_per_kwh (there are: {known})")
        return self
