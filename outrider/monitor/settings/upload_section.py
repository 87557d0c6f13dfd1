"""Settings of uploads: endpoints that an uploaded version may name."""

from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from outrider.addresses import literal_of, origin_of, place_of
from outrider.dataops.model_kinds.source import ALLOWED

from .sections import Section, networks_of


class UploadSettings(Section):
    """Endpoints that an upload may name; none by default."""

    endpoints: tuple[str, ...] = Field(
        default=(), description="host:port of each; an upload of kind endpoint names one of them"
    )
    networks: tuple[str, ...] = Field(
        default=(),
        description="networks (CIDR) that their names may resolve to, in addition to public addresses; an "
        "endpoint that is an address needs none",
    )
    key_envs: dict[str, Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]] = Field(
        default_factory=dict,
        description="by scheme://host:port: environment variable with the key that is sent there alone",
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="of all of them, but key_env; docs/shadow-models.md"
    )

    @field_validator("endpoints")
    @classmethod
    def _are_places(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        places = tuple(place_of(text) for text in value)
        for place in places:
            address = literal_of(place)
            if address is not None and (address.is_multicast or address.is_unspecified):
                raise ValueError(f"the address of one server expected, got {place}")
        return places

    @field_validator("networks")
    @classmethod
    def _are_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return networks_of(value)

    @field_validator("key_envs")
    @classmethod
    def _are_origins(cls, value: dict[str, str]) -> dict[str, str]:
        return {"://".join(origin_of(origin)): name for origin, name in value.items()}

    @model_validator(mode="after")
    def _keys_of_endpoints(self) -> "UploadSettings":
        for origin, name in self.key_envs.items():
            if origin_of(origin)[1] not in self.endpoints:
                raise ValueError(f"key_envs: {origin}: one of endpoints expected, got {self._named}")
            if name.upper().startswith("OUTRIDER_"):
                raise ValueError(
                    f"key_envs: {origin}: a variable of its own expected, none of Outrider's, got {name}"
                )
        if "key_env" in self.options:
            raise ValueError("options.key_env: key_envs names the variable of each endpoint instead")
        return self

    def source_options(self, url: str) -> dict[str, Any] | None:
        """Options of an uploaded endpoint; None if it is not allowed."""
        try:
            scheme, place = origin_of(url)
        except ValueError:
            return None
        if place not in self.endpoints:
            return None
        literal = literal_of(place)
        networks = self.networks if literal is None else (str(literal),)
        allowed = {
            "place": place,
            "networks": list(networks),
            "key_env": self.key_envs.get(f"{scheme}://{place}"),
        }
        return {**self.options, ALLOWED: allowed}

    @property
    def _named(self) -> str:
        return ", ".join(self.endpoints) or "none"
