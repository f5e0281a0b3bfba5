"""What a cloud's own guide sets for NCCL on its machines, each with its source and when it was read there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from syncline.describe.document import read_document


@dataclass(frozen=True)
class CloudProfile:
    """The settings of one cloud's network: `variables` is name -> (value, reason).

    `profile` is the vendor's own file to source first, `profile_variables` what it wants to be told, `sidecar` the
    daemon that must run beside the job.
    """

    cloud: str
    networks: frozenset[str]
    hosts: tuple[str, ...]
    variables: Mapping[str, tuple[str, str]]
    source: str
    read: str
    profile: str = ""
    profile_variables: tuple[tuple[str, str], ...] = ()
    sidecar: str = ""

    def fits(self, host: str, network: str) -> bool:
        """Say whether a host model on this network belongs to this cloud."""
        name = host.lower()
        return network in self.networks and any(name == known or name.startswith(f"{known}-") for known in self.hosts)


@cache
def cloud_profiles() -> tuple[CloudProfile, ...]:
    """Return every profile that ships."""
    text = (files("syncline.advise") / "clouds.yaml").read_text(encoding="utf-8")
    rows = read_document(text, "clouds.yaml").data
    return tuple(
        CloudProfile(
            cloud=str(row["cloud"]),
            networks=frozenset(str(name) for name in row["network"]),
            hosts=tuple(str(name).lower() for name in row["hosts"]),
            variables={str(name): (str(value), str(reason)) for name, (value, reason) in row["variables"].items()},
            source=str(row["source"]),
            read=str(row["read"]),
            profile=str(row.get("profile", "")),
            profile_variables=tuple((str(k), str(v)) for k, v in (row.get("profile_variable") or {}).items()),
            sidecar=str(row.get("sidecar", "")),
        )
        for row in rows
    )


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
