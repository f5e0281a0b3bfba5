"""What should be set for NCCL on a cluster, and does a log show that it took effect?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from syncline.advise import Bundle, Effect, bundle
from syncline.advise import check_effect as look
from syncline.describe.plain import JsonObject
from syncline.diagnose.source import Unread
from syncline.questions.answer import Answer
from syncline.questions.cluster import Cluster, built
from syncline.questions.job import JobSource, job_of


@dataclass(frozen=True, eq=False)
class Advice(Answer):
    """Variables with their reasons, tuner choices, and the files that start a job with them."""

    bundle: Bundle = field(repr=False)

    def write(self, folder: str | Path) -> list[Path]:
        """Write the files into a folder and return their paths."""
        return list(self.bundle.write(Path(folder)))

    def to_json(self) -> JsonObject:
        return self.bundle.to_json()


@dataclass(frozen=True, eq=False)
class EffectCheck(Answer):
    """Whether what was set took effect, line by line: yes, no or unknown."""

    effects: tuple[Effect, ...]
    unread: tuple[Unread, ...]

    def to_json(self) -> JsonObject:
        return {
            "effects": [effect.to_json() for effect in self.effects],
            "unread": [{"path": item.path, "reason": item.reason} for item in self.unread],
        }


def advise(
    cluster: Cluster,
    job: JobSource | None = None,
    *,
    nccl: str | None = None,
    ranks: int | None = None,
    tuner: bool = False,
) -> Advice:
    """Say what to set for NCCL on a cluster, each line with its reason.

    `tuner` adds a tuner file: choices of the model that nobody has measured there.
    """
    chosen = job_of(job) if job is not None else None
    return Advice(bundle(built(cluster), chosen, nccl=nccl, ranks=ranks, tuner=tuner))


def check_effect(
    logs: Sequence[str | Path], cluster: Cluster, *, wanted: Mapping[str, str] | None = None
) -> EffectCheck:
    """Say from NCCL's logs whether network, GPUDirect, NICs, rails, NVLS, channels and variables are as meant."""
    effects, unread = look([str(log) for log in logs], built(cluster), dict(wanted or {}))
    return EffectCheck(tuple(effects), tuple(unread))
