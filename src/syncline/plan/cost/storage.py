"""Storage: the rates that reading samples and writing checkpoints ask for."""

from __future__ import annotations

from dataclasses import dataclass

from syncline.describe.plain import JsonObject
from syncline.errors import CostError


@dataclass(frozen=True)
class StorageNeed:
    """What a storage system must sustain for one job."""

    read_Bps: float
    """Samples, all GPUs together."""
    write_Bps: float
    """A checkpoint in the time allowed for it."""
    restore_Bps: float
    """The same state read back in the time allowed for a restart."""

    @property
    def peak_Bps(self) -> float:
        return max(self.read_Bps, self.write_Bps, self.restore_Bps)

    def to_json(self) -> JsonObject:
        """Return the figures as plain data."""
        return dict(vars(self)) | {"peak_Bps": self.peak_Bps}


def storage_need(
    num_gpus: int,
    samples_per_s_per_gpu: float,
    sample_bytes: float,
    *,
    state_bytes: float = 0.0,
    write_s: float = 100.0,
    restore_s: float = 300.0,
) -> StorageNeed:
    """Return the rates for samples of this size at this speed and a training state of this size.

    Nothing is cached on the hosts, and every GPU reads samples of its own. For text a sample is a token of 4 bytes.
    """
    if min(num_gpus, samples_per_s_per_gpu, sample_bytes, state_bytes) < 0 or min(write_s, restore_s) <= 0:
        raise CostError(
            "sizes and speeds must not be negative, and times must be positive.", hint="Check the numbers given."
        )
    read = num_gpus * samples_per_s_per_gpu * sample_bytes
    return StorageNeed(read, state_bytes / write_s, state_bytes / restore_s)


def state_bytes(params: float, bytes_per_param: float = 14.0) -> float:
    """Return the size of a training state: 14 bytes are 16-bit weights, 32-bit master copy and two Adam moments."""
    return params * bytes_per_param
