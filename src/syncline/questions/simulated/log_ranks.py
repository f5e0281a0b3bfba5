"""How many ranks a log of nccl-tests is of, and of which GPUs: a fit to it on others would be wrong without a word."""

from __future__ import annotations

import re
from pathlib import Path

from syncline.bench.measured import bus_factor
from syncline.bench.nccl_log import read_log
from syncline.bench.nccl_run import NcclTestRun
from syncline.errors import SynclineError, UsageError
from syncline.fabric import Fabric
from syncline.planning.cost.renting import gpu_models
from syncline.schedule.collective import Kind

SAME_FACTOR = 0.01
"""Bus over algorithm bandwidth of two numbers of ranks that a log's digits cannot tell apart."""


def check_gpu(log: NcclTestRun, fabric: Fabric) -> None:
    """Refuse a log of other GPUs than the cluster's: what is predicted would be for those."""
    models = list(gpu_models(fabric))
    names = {device.name for device in log.devices if device.name}
    words = [model.split("-")[0] for model in models]
    if not names or any(re.search(rf"(?<![a-z0-9]){word}(?![a-z0-9])", min(names), re.IGNORECASE) for word in words):
        return
    raise UsageError(
        f"the log is of {min(names)}, and {fabric.name} has {' and '.join(models)}.",
        hint="Give the cluster that the log was taken on.",
    )


def ranks_of(log: Path, op: str, asked: int | None, fabric: Fabric) -> int | None:
    """Return how many ranks a log is of: as asked, the whole cluster where that fits its bandwidths, or as it says."""
    try:
        told = read_log(log, kind=Kind(op) if op in set(Kind) else None)
    except SynclineError:  # it does not say, or is refused below
        return asked
    check_gpu(told, fabric)
    wanted = bus_factor(told.kind, asked or fabric.num_gpus)
    if abs(bus_factor(told.kind, told.num_ranks) / wanted - 1) < SAME_FACTOR:  # printed with two digits
        return asked
    if asked is not None:
        raise UsageError(f"{log} is of {told.num_ranks:,} ranks, not {asked:,}: its bus bandwidth says so.",
                         hint=f"Set `ranks` to {told.num_ranks}, or name the log of that run.")  # fmt: skip
    return told.num_ranks
