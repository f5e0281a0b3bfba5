"""A scenario: several jobs on one cluster with tenants, failures, stragglers and other traffic, read from a file.

    scenario = load_scenario("shared.yaml")
    report = play(scenario, fabric)            # sim/play.py

docs/guides/scenario.md has the keys.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from syncline.describe.guide import cite
from syncline.describe.mistakes import load_described
from syncline.describe.quantity import Rate, Seconds, Size, Strict
from syncline.fabric.fabric import Tier
from syncline.sim.candidates import NAMES
from syncline.sim.flow.expand import Share
from syncline.sim.flow.routing import NetworkOptions, Routing

GUIDE = cite("scenario")
MAX_COPIES = 1000


class Treatment(Strict):
    """How flows are treated on contested links; times and rates with their unit."""

    tenant: str = ""
    weight: float = Field(default=1.0, ge=1e-6, le=1e6)
    priority: int = Field(default=0, ge=0, le=255)
    cap: Rate | None = None

    @property
    def share(self) -> Share:
        return Share(self.weight, self.priority, np.inf if self.cap is None else self.cap, self.tenant)


class JobPart(Treatment):
    """One collective of one job, done once or `repeat` times with `compute` before each."""

    name: str
    collective: str = "allreduce"
    algorithm: str = "auto"
    size: Size
    hosts: str | None = None
    ranks: int | None = Field(default=None, ge=1)
    placement: str = "packed"
    start: Seconds = 0.0
    after: tuple[str, ...] = ()
    compute: Seconds = 0.0
    repeat: int = Field(default=1, ge=1, le=MAX_COPIES)
    period: Seconds = 0.0
    """Repetition k not before `start` + k x `period`: the slots of `syncline share`."""
    slow: Mapping[int, float] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _known(self) -> JobPart:
        if self.collective not in NAMES:
            raise ValueError(f'no collective is called "{self.collective}"; one of {", ".join(NAMES)}')
        return self


class Event(Strict):
    """From `at` on a cable or a device has `rate` (0: it is down); traffic moves away after `reroute`, or waits."""

    at: Seconds
    link: str | None = None
    device: str | None = None
    which: int | None = Field(default=None, ge=0)
    rate: Rate | Literal["full"] = 0.0
    reroute: Seconds | None = None

    @model_validator(mode="after")
    def _one_part(self) -> Event:
        if (self.link is None) == (self.device is None):
            raise ValueError("an event names either a `link` or a `device`")
        return self


class SteadyTraffic(Treatment):
    """Other traffic: a steady rate from one host or GPU to another."""

    source: str = Field(alias="from")
    target: str = Field(alias="to")
    rate: Rate
    start: Seconds = 0.0
    duration: Seconds = Field(alias="for")


class NetworkPart(Strict):
    """How the network and the hosts treat flows."""

    routing: Routing = "auto"
    seed: int = 0
    transport: str = "auto"
    gpudirect: bool | None = None
    cross_rail: Literal["fabric", "nvlink"] = "fabric"
    half_duplex: tuple[Literal["nvlink", "pcie", "access", "leaf-spine", "spine-core", "wan"], ...] = ()

    @property
    def options(self) -> NetworkOptions:
        tiers = frozenset(_TIERS[name] for name in self.half_duplex)
        return NetworkOptions(self.routing, self.seed, self.transport, self.gpudirect, self.cross_rail, tiers)


_TIERS = {
    "nvlink": Tier.SCALE_UP,
    "pcie": Tier.PCIE,
    "access": Tier.ACCESS,
    "leaf-spine": Tier.LEAF_SPINE,
    "spine-core": Tier.SPINE_CORE,
    "wan": Tier.WAN,
}


class Scenario(Strict):
    """Jobs that share a cluster, and what happens to it meanwhile."""

    name: str = "scenario"
    cluster: str | None = None
    network: NetworkPart = NetworkPart()
    tenants: Mapping[str, float] = Field(default_factory=dict)
    jobs: tuple[JobPart, ...] = Field(min_length=1)
    events: tuple[Event, ...] = ()
    traffic: tuple[SteadyTraffic, ...] = ()

    @model_validator(mode="after")
    def _names_fit(self) -> Scenario:
        seen: set[str] = set()
        for job in self.jobs:
            if job.name in seen:
                raise ValueError(f'two jobs are called "{job.name}"')
            for other in job.after:
                if other not in seen:
                    raise ValueError(f'job "{job.name}" waits for "{other}", which is not a job before it')
            seen.add(job.name)
        return self


def load_scenario(source: str | os.PathLike[str] | Mapping[str, Any]) -> Scenario:
    """Return the scenario that a file or a mapping describes."""
    return load_described(source, Scenario, GUIDE, "scenario")
