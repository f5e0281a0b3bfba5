"""What a cloud's own guide sets for NCCL on its machines, each with its source and when it was read there."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Annotated

from pydantic import BeforeValidator, Field

from syncline.describe.document import read_document
from syncline.describe.quantity import Strict


class CloudProfile(Strict):
    """The settings of one cloud's network: `variables` is name -> (value, reason).

    `profile` is the vendor's own file to source first, `profile_variable` what it wants to be told, `sidecar` the
    daemon that must run beside the job.
    """

    cloud: str
    networks: frozenset[str] = Field(alias="network")
    hosts: tuple[str, ...]
    variables: dict[str, tuple[str, str]]
    source: str
    read: Annotated[str, BeforeValidator(str)]
    profile: str = ""
    profile_variable: dict[str, str] = Field(default_factory=dict)
    sidecar: str = ""

    def fits(self, host: str, network: str) -> bool:
        """Say whether a host model on this network belongs to this cloud."""
        name = host.lower()
        return network in self.networks and any(name == known or name.startswith(f"{known}-") for known in self.hosts)


@cache
def cloud_profiles() -> tuple[CloudProfile, ...]:
    """Return every profile that ships."""
    text = (files("syncline.advice") / "clouds.yaml").read_text(encoding="utf-8")
    return tuple(CloudProfile.model_validate(row) for row in read_document(text, "clouds.yaml").data)


def cloud_of(host: str, network: str) -> CloudProfile | None:
    """Return the profile of a host model on a network, if it is a cloud's.

    TCPX, TCPXO and EFA are one cloud's each, whatever the host is called.
    """
    for profile in cloud_profiles():
        if profile.fits(host, network):
            return profile
    own = ("tcpx", "tcpxo")
    return next(
        (p for p in cloud_profiles() if network in p.networks and (network in own or network.startswith("efa"))), None
    )
