"""One rank of a fault schedule: trains a small model, strikes itself where it is told, and says how it ends."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import syncline.runtime.alive.checkpoint
import syncline.runtime.auto.auto
import syncline.runtime.sync.fsdp
import syncline.runtime.sync.start
import syncline.torch
from syncline.errors import SynclineError

WIDTH, BATCH = 48, 8
SAVE_EVERY = 4
FILLER = "filler"


def main(told: dict[str, Any]) -> int:
    """Train as told and return the exit code: 0 went to the end, 3 raised."""
    logging.basicConfig(level=logging.WARNING)
    os.environ |= {key: str(value) for key, value in told["env"].items()}
    try:
        losses, weights = train(told)
    except SynclineError as error:
        say(told, error=type(error).__name__, text=error.message)
        return 3
    except Exception as error:
        say(told, error=type(error).__name__, text=str(error)[:600])
        raise
    say(told, losses=losses, weights=weights)
    return 0


def train(told: dict[str, Any]) -> tuple[list[str], str]:
    """Return the loss of each step and a hash of the weights at the end."""
    rank, strikes = int(told["rank"]), told["strikes"]
    dist.init_process_group("gloo", rank=rank, world_size=told["num_ranks"])
    model = make(told["mode"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    handle = syncline.torch.synchronize(model, codec=told["codec"], **told["options"])
    disk = Disk(told) if told["disk"] else None
    losses = []
    try:
        for step in range(told["steps"]):
            mine = [s for s in strikes if (s["rank"], s["step"]) == (rank, step)]
            for strike in mine:
                strike_now(told, strike)
            x = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(1000 * step + rank))
            loss: torch.Tensor = (model(x) - x[:, :4].sum(1, keepdim=True)).square().mean()
            if any(strike["kind"] == "nan" for strike in mine):
                loss = loss * float("nan")
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses.append(loss.item().hex())
            if disk is not None:
                disk.after(step, model, optimizer, handle, mine)
            time.sleep(told["pause_s"])
        found = fingerprint(model)
        if disk is not None:
            disk.check(model, optimizer, handle)
    finally:
        handle.close()
    return losses, found


def make(mode: str) -> Any:
    """Return the model in the mode."""
    torch.manual_seed(0)
    layers = [nn.Linear(WIDTH, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 1)]
    model: Any = nn.Sequential(*layers)
    if mode == "ddp":
        return DistributedDataParallel(model)
    if mode == "fsdp":
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    else:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("across", "inside"))
    for layer in (layers[0], layers[2]):
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def strike_now(told: dict[str, Any], strike: dict[str, Any]) -> None:
    """Do to this rank what the schedule says; what happens to its link is done from outside."""
    kind, value = strike["kind"], strike["value"]
    if kind == "exception":
        raise ValueError(f"shard {strike['step']} of the data is not there")
    if kind == "late":
        time.sleep(value)
    elif kind in ("kill", "stop"):
        threading.Timer(strike["after_s"], _signal, (kind, value)).start()
    elif kind in ("down", "loss"):
        say(told, strike=strike)


def _signal(kind: str, value: float) -> None:
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    subprocess.Popen(["sh", "-c", f"sleep {value}; kill -CONT {os.getpid()}"])
    os.kill(os.getpid(), signal.SIGSTOP)


class Disk:
    """Checkpoints on a disk that gets full: the last whole one must hold what the model was then."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.folder = Path(told["disk"])
        self.checkpoints = syncline.torch.Checkpoints(self.folder / "run", keep=2)
        self.known: dict[int, str] = {}

    def after(self, step: int, model: Any, optimizer: Any, handle: Any, mine: list[dict[str, Any]]) -> None:
        """Fill the disk where that is this step's fault, and save every few steps."""
        if any(strike["kind"] == "disk" for strike in mine):
            _fill(self.folder / FILLER)
        if (step + 1) % SAVE_EVERY == 0:
            self.known[step + 1] = fingerprint(model)
            self.checkpoints.save(step + 1, model, optimizer, handle)

    def check(self, model: Any, optimizer: Any, handle: Any) -> None:
        """Raise unless the newest checkpoint is whole and holds what the model was."""
        step, _ = self.checkpoints.restore(model, optimizer, handle)
        if step and fingerprint(model) != self.known[step]:
            raise RuntimeError(f"SILENT: the checkpoint of step {step} holds other weights.")
        if not step and any(self.checkpoints.folder.glob("step-*")):
            raise RuntimeError("SILENT: no checkpoint could be restored.")


def _fill(path: Path) -> None:
    """Leave no room on a disk."""
    with contextlib.suppress(OSError):
        filler = os.open(path, os.O_WRONLY | os.O_CREAT)
        with contextlib.suppress(OSError):
            while os.write(filler, b"x" * 4096):
                continue
        os.close(filler)


def fingerprint(model: Any) -> str:
    """Return a hash of this rank's part of the weights."""
    parts = [getattr(p.detach(), "to_local", p.detach)() for p in model.parameters()]
    return hashlib.sha256(b"".join(part.contiguous().numpy().tobytes() for part in parts)).hexdigest()[:16]


def say(told: dict[str, Any], **what: Any) -> None:
    """Print a line for whoever watches."""
    print(json.dumps({"schedule": told["number"], "rank": told["rank"], "at_s": time.monotonic(), **what}), flush=True)
