"""FSDP2 from wherever this torch keeps it, and whether it lets its collectives be replaced."""

from __future__ import annotations

import torch

from syncline.runtime.sync.sharded import OLDEST_TORCH

try:
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
except ImportError:  # torch before 2.6
    from torch.distributed._composable.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

__all__ = ["HAS_FSDP2", "WHY_NOT", "CPUOffloadPolicy", "MixedPrecisionPolicy", "fully_shard"]

HAS_FSDP2 = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= OLDEST_TORCH
WHY_NOT = "FSDP2 is synchronised from torch {}.{} on".format(*OLDEST_TORCH)
