"""What ranks do in the tests of per-step averaging over a crew: plain modules, and replicas that FSDP2 shards."""

from __future__ import annotations

import datetime
import os
import signal
from typing import Any

import torch
import torch.distributed as dist
from tests.distributed.cases.crew_cases import await_knock
from tests.distributed.cases.fsdp2 import fully_shard
from tests.distributed.cases.training import batch, network
from torch.distributed.device_mesh import init_device_mesh

import syncline.torch

NUM_RANKS, STEPS, DOOR = 3, 16, 4
KILLED, KILLED_AT, KNOCK_AT = 2, 5, 8
OPTIONS: dict[str, Any] = {"watch_s": 30.0, "timeout_s": 120.0, "door_every": DOOR}


def train(rank: int, port: int, is_back: bool) -> dict[str, Any]:
    """Rank 2 is killed within step 5 and comes back with other weights; rank 1 waits until it knocks.

    Those who are there share a batch that no number of ranks divides.
    """
    torch.manual_seed(7)
    store = _store(port)
    crew = syncline.torch.Crew(store, rank, NUM_RANKS, patience_s=120.0, wait_s=240.0)
    model = network(seed=rank + 10 * is_back)
    optimizer, scheduler = trainer(model)
    handle = syncline.torch.elastic(model, optimizer, crew, "fp32", carry={"scheduler": scheduler}, **OPTIONS)
    start_weights = flat(model)
    steps, counts = [], []
    while handle.step < STEPS:
        step = handle.step
        if (rank, step) == (1, KNOCK_AT):
            with handle.busy():
                await_knock(store, KILLED)
        place, count = handle.place
        loss = model(whole(step).tensor_split(count)[place]).square().mean()
        if (rank, step, is_back) == (KILLED, KILLED_AT, False):
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if handle.step > step:
            steps.append(step)
            counts.append(count)
    summary = handle.summary()
    handle.close()
    return {
        "weights": flat(model), "start": start_weights, "steps": steps, "counts": counts, "history": handle.history,
        "rate": optimizer.param_groups[0]["lr"], "summary": summary, "alone": flat(alone(start_weights)),
    }  # fmt: skip


def whole(step: int) -> torch.Tensor:
    """Return the batch of a step, whoever shares it."""
    return torch.cat([batch(part, step) for part in range(3)])[:23]


def trainer(model: torch.nn.Module) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.9)


def alone(weights: list[float]) -> torch.nn.Module:
    """Return the model that one rank trains on whole batches from these weights."""
    model = network()
    torch.nn.utils.vector_to_parameters(torch.tensor(weights), model.parameters())
    optimizer, scheduler = trainer(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        model(whole(step)).square().mean().backward()
        optimizer.step()
        scheduler.step()
    return model


def replicas(process: int, port: int, ports: tuple[int, int, int], is_back: bool) -> dict[str, Any]:
    """Two replicas of two shards each; the second is killed as a whole and comes back."""
    replica, shard = divmod(process, 2)
    meeting = ports[replica + is_back]
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{meeting}", rank=shard, world_size=2)
    torch.manual_seed(replica + 10 * is_back)
    store = _store(port)
    model: Any = fully_shard(network(seed=replica + 10 * is_back), mesh=init_device_mesh("cpu", (2,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    crew = syncline.torch.Crew(store, replica, 2, name="replicas", patience_s=120.0, wait_s=240.0)
    handle = syncline.torch.elastic(model, optimizer, crew, "int8", **OPTIONS)
    steps = []
    while handle.step < STEPS:
        step = handle.step
        if (replica, shard, step, is_back) == (0, 0, KNOCK_AT, False):
            with handle.busy():
                store.wait(["syncline/crew/replicas/ticket/1"], datetime.timedelta(seconds=240))
        if (replica, step, is_back) == (1, KILLED_AT, False):
            os.kill(os.getpid(), signal.SIGKILL)
        loss = model(batch(process, step)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if handle.step > step:
            steps.append(step)
    handle.close()
    dist.destroy_process_group()
    local = torch.cat([p.detach().to_local().flatten() for p in model.parameters()])
    return {"weights": local.tolist(), "steps": steps, "history": handle.history}


def flat(model: torch.nn.Module) -> list[float]:
    return torch.cat([p.detach().flatten() for p in model.parameters()]).tolist()


def _store(port: int) -> Any:
    patience = datetime.timedelta(seconds=240)
    return dist.TCPStore("127.0.0.1", port, is_master=False, timeout=patience, wait_for_workers=False)
