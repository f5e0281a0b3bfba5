"""The file of a shared cluster: jobs, tenants, other traffic, failures. docs/guides/share.md has the keys."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_validator

from syncline.describe.guide import cite
from syncline.describe.mistakes import load_described
from syncline.describe.quantity import Rate, Seconds, Size, Strict
from syncline.fabric.faults import FailedPart
from syncline.sim.scenario import Treatment

GUIDE = cite("share")


class StatedStep(Strict):
    """A step known from outside: a computation, then an all-reduce of so many bytes that hides behind nothing."""

    compute: Seconds
    exchange: Size


class SharedJob(Treatment):
    """A job on the shared cluster: a training job (`job`), or a step that was measured (`step`)."""

    name: str
    job: str | Mapping[str, Any] | None = None
    step: StatedStep | None = None
    hosts: int | str
    """How many hosts it wants, or which it has."""
    arrives: Seconds = 0.0
    leaves: Seconds | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> SharedJob:
        if (self.job is None) == (self.step is None):
            raise ValueError(f'job "{self.name}" needs either `job` or `step`')
        if self.leaves is not None and self.leaves <= self.arrives:
            raise ValueError(f'job "{self.name}" leaves before it arrives')
        if isinstance(self.hosts, int) and self.hosts < 1:
            raise ValueError(f'job "{self.name}" needs a host at least')
        return self


class Bursts(Treatment):
    """Storage and other traffic between hosts: a steady `rate`, or `size` bytes `every` so often."""

    name: str = "traffic"
    source: str = Field(alias="from")
    target: str = Field(alias="to")
    rate: Rate | None = None
    size: Size | None = None
    every: Seconds | None = None
    start: Seconds = 0.0

    @model_validator(mode="after")
    def _one_form(self) -> Bursts:
        if (self.rate is None) == (self.size is None) or (self.size is None) != (self.every is None):
            raise ValueError("traffic has either a `rate`, or a `size` and how often (`every`)")
        if self.every == 0:
            raise ValueError("`every` must be longer than 0 s; steady traffic has a `rate`")
        return self


class Failure(FailedPart):
    """A part that is down, or slow, from `at` until `until` (default: for good)."""

    at: Seconds = 0.0
    until: Seconds | None = None


class SharedNetwork(Strict):
    """What of their rate links give to payload; default: what training was seen to reach."""

    efficiency: float | None = Field(default=None, gt=0, le=1)


class SharedCluster(Strict):
    """Everything that shares a cluster."""

    cluster: str | None = None
    tenants: Mapping[str, float] = Field(default_factory=dict)
    network: SharedNetwork = SharedNetwork()
    jobs: tuple[SharedJob, ...] = Field(min_length=1, max_length=16)
    traffic: tuple[Bursts, ...] = ()
    failures: tuple[Failure, ...] = ()

    @model_validator(mode="after")
    def _fits(self) -> SharedCluster:
        names = [job.name for job in self.jobs]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f'two jobs are called "{name}"')
        if sum(self.tenants.values()) > 1 + 1e-9 or any(part < 0 for part in self.tenants.values()):
            raise ValueError(f"guarantees add up to {sum(self.tenants.values()):.2f} of a link; at most 1")
        return self


def load_jobs(source: str | os.PathLike[str] | Mapping[str, Any]) -> SharedCluster:
    """Return what a file or a mapping describes."""
    return load_described(source, SharedCluster, GUIDE, "jobs file")
