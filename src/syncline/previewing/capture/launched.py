"""How a script's ranks are started: by a launcher, by the script itself, or not at all."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import torch

LAUNCHED = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "NODE_RANK", "ROLE_RANK",
    "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
)  # fmt: skip


def spawned(sized: Callable[[int], None]) -> None:
    """Let a script that starts its ranks itself be one of them; `sized` hears how many there are.

    They are functions (`mp.spawn`), or the script again in processes that are told their ranks (Lightning).
    """
    local = int(os.environ["LOCAL_RANK"])

    def spawn(fn: Any, args: Any = (), nprocs: int = 1, *_: Any, **__: Any) -> None:
        sized(int(nprocs))
        fn(local, *args)

    starts: Any = torch.multiprocessing
    starts.spawn = spawn
    start = subprocess.Popen.__init__

    @wraps(start)
    def started(self: Any, *args: Any, **given: Any) -> None:
        told = given.get("env") or {}
        if "LOCAL_RANK" in told and str(told.get("WORLD_SIZE", "")).isdigit():
            sized(int(told["WORLD_SIZE"]))
        start(self, *args, **given)

    subprocess.Popen.__init__ = started  # type: ignore[method-assign]


def unlaunched(given: Mapping[str, str]) -> None:
    """Let a script that python starts alone see no launcher: of its variables those that its command gives."""
    for name in [name for name in os.environ if name in LAUNCHED or name.startswith("TORCHELASTIC_")]:
        if name not in given:
            del os.environ[name]


def one_gpu() -> None:
    """Refuse DataParallel over several GPUs, as one rank has one."""
    parallel: Any = torch.nn.DataParallel
    start = parallel.__init__

    @wraps(start)
    def alone(self: Any, *args: Any, **given: Any) -> None:
        start(self, *args, **given)
        if len(self.device_ids) > 1:
            raise RuntimeError(
                f"DataParallel computes on {len(self.device_ids)} GPUs in one process; a preview runs one GPU a rank: "
                "use DistributedDataParallel, or CUDA_VISIBLE_DEVICES=0"
            )

    def moved(tensor: Any, *_: Any, **__: Any) -> tuple[Any, ...]:
        return (tensor.to("cuda"),)  # to the one; torch's own scatter is in its CUDA build alone

    parallel.__init__ = alone
    comm: Any = torch.nn.parallel.comm
    comm.scatter = moved
