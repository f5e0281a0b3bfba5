"""Data loading and checkpoints: what the storage network must give, and what a step waits for it."""

from __future__ import annotations

from dataclasses import dataclass

from syncline.describe.model import reported
from syncline.workload.job import Job

#: A checkpoint holds bf16 weights, the fp32 copy and two moments.
CHECKPOINT_BYTES_PER_PARAMETER = 14.0


@dataclass(frozen=True)
class Storage:
    """Bytes and rates of one step's input and of a checkpoint, and what a step waits for both."""

    read_bytes_per_step: float
    read_needed_Bps: float
    read_given_Bps: float | None
    checkpoint_bytes: float
    checkpoint_s: float | None
    stall_s_per_step: float

    @reported
    def enough(self) -> bool | None:
        """Whether the storage network feeds the step; None where its rate is not known."""
        return None if self.read_given_Bps is None else self.read_given_Bps >= self.read_needed_Bps


def storage_of(job: Job, step_s: float) -> Storage:
    """Return what a step of this length asks of the storage, and how long it waits."""
    # Tokens are read as 4-byte numbers; an image of ImageNet is 110 kB, a Criteo sample 160 bytes.
    usual = {"resnet-50": 110e3, "dlrm": 160.0}.get(job.model.name, 4.0 * job.batch.sequence)
    sample = job.data.sample_bytes or usual
    read = sample * job.batch.global_
    given = job.data.storage_rate
    stall = max(0.0, read / given - step_s) if given else 0.0
    size = CHECKPOINT_BYTES_PER_PARAMETER * job.model.params
    rate = job.checkpoint.storage_rate or given
    write = size / rate if rate else None
    if write is not None and job.checkpoint.every_steps:
        every = job.checkpoint.every_steps
        # Written behind the steps until the next one is due; a second one may not start before the first has ended.
        blocked = max(0.0, write - every * step_s) if job.checkpoint.asynchronous else write
        stall += blocked / every
    return Storage(read, read / step_s, given, size, write, stall)
