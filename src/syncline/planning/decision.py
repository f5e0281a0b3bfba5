"""A decision: everything that was chosen for a job, and the job that follows from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncline.codec.names import PLAIN
from syncline.planning.block import shard_ranks, worded
from syncline.planning.space import NUMBERS, WORDS, Rows, Switches
from syncline.workload.job import Job
from syncline.workload.parallel import SHARDED

Split = dict[str, bool | int | float | str | tuple[str, ...] | None]
"""How a job is split, by the keys of a job file."""
SPLIT_NUMBERS = ("tp", "pp", "dp", "cp", "ep")


@dataclass(frozen=True, order=True)
class Decision:
    """One configuration."""

    tp: int
    pp: int
    dp: int
    cp: int
    ep: int
    virtual: int
    micro: int
    num_micro: int
    zero: str
    schedule: str
    recompute: str
    sp: bool
    tp_overlap: bool
    dp_overlap: bool
    reshard: bool
    gradient_bytes: int = 2
    codec: str = PLAIN
    placement: str = "packed"
    algorithm: str = ""
    bucket_bytes: int = 0
    offload: str = "none"

    @property
    def num_gpus(self) -> int:
        return self.tp * self.pp * self.dp * self.cp

    @property
    def replica_gpus(self) -> int:
        """GPUs that one replica of the model runs on."""
        return self.tp * self.pp * self.cp

    @property
    def split(self) -> tuple[int | str, ...]:
        """What tells splits apart: the sizes of the groups, how state is sharded, and how ranks are placed."""
        return (*(getattr(self, name) for name in SPLIT_NUMBERS), self.zero, self.placement)

    @property
    def words(self) -> Switches:
        chosen = {name: getattr(self, name) for name in WORDS}
        return Switches(**chosen, tensor=self.tp > 1, pipeline=self.pp > 1)

    @property
    def row(self) -> Rows:
        return Rows(**{name: np.array([getattr(self, name)], dtype=np.int64) for name in NUMBERS})

    def job(self, job: Job, domain: int) -> Job:
        """Return the job run this way."""
        job = worded(job, self.words)
        shard = int(shard_ranks("hsdp", self.row, domain)[0]) if self.zero == "hsdp" else None
        numbers = {name: getattr(self, name) for name in ("tp", "pp", "dp", "cp", "ep", "virtual")}
        split = job.parallel.model_copy(update=numbers | {"shard": shard, "placement": self.placement})
        batch = job.batch.model_copy(update={"micro": self.micro})
        return job.model_copy(update={"parallel": split, "batch": batch, "gpus": self.num_gpus})

    def parallel(self) -> Split:
        """Return the split as `--json` prints it."""
        return {name: getattr(self, name) for name in (*NUMBERS, *WORDS) if name not in ("algorithm", "bucket_bytes")}

    @property
    def label(self) -> str:
        """The split in a few words: `tp 8, pp 4, dp 16; micro 1 x 64; ZeRO 1; 1f1b`."""
        sizes = [f"tp {self.tp}", f"pp {self.pp}", f"dp {self.dp}"]
        sizes += [f"cp {self.cp}"] * (self.cp > 1) + [f"ep {self.ep}"] * (self.ep > 1)
        zero = {"none": "no ZeRO", "3": "FSDP (ZeRO 3)", "hsdp": "HSDP", "fsdp": "FSDP"}.get(
            self.zero, f"ZeRO {self.zero}"
        )
        schedule = f"{self.schedule} x {self.virtual}" if self.virtual > 1 else self.schedule
        alone = self.dp * self.cp == 1  # nobody to share state with: all kinds of sharding are one
        words = [
            *([zero] * (not alone)),
            *([schedule] * (self.pp > 1)),
            *([f"recompute {self.recompute}"] * (self.recompute != "none")),
        ]
        words += ["parameters stay gathered"] * (self.zero in SHARDED and self.pp == 1 and not self.reshard)
        words += ["sequence parallel"] * self.sp + [f"offload {self.offload}"] * (self.offload != "none")
        return "; ".join(
            filter(None, (", ".join(sizes), f"micro-batch {self.micro} x {self.num_micro}", ", ".join(words)))
        )


def decision_of(words: Switches, rows: Rows, number: int, placement: str = "packed") -> Decision:
    """Return one row of a block as a decision."""
    values = {name: int(getattr(rows, name)[number]) for name in NUMBERS} | {
        name: getattr(words, name) for name in WORDS
    }
    return Decision(**values, placement=placement)
