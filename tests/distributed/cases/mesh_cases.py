"""What ranks do in the grid of meshes: data parallelism in every form beside tensor, sequence and pipeline axes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from tests.distributed.cases.fsdp2 import fully_shard
from tests.distributed.cases.training import start
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

import syncline.torch
from syncline.errors import SynclineError

WIDTH, STEPS = 88, 4
CODECS = ("fp32", "bf16", "fp16", "int8", "int4", "sign", "powersgd:rank=2")
FEW = ("fp32", "int8", "sign")
"""Of stages of a pipeline, which are models of their own on ranks of their own."""
CELLS = ("FSDP2 TP", "FSDP2 SP", "DDP TP", "DDP PP", "FSDP2 PP", "HSDP")
OPTIONS: dict[str, Any] = {"check_every": 2, "timeout_s": 240.0, "warmup": 0, "piece_bytes": 16384}
QUIET = {**OPTIONS, "watch_s": 0.0}
"""Without heartbeats: making and closing a handle takes half the time."""


class Block(nn.Module):
    """Two linear layers that tensor parallelism cuts, between norms that it does not; sizes divide nothing evenly."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.up = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.down, self.after = nn.Linear(3 * WIDTH, WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.after(self.down(torch.relu(self.up(self.before(x)))))
        return y


def network(num_blocks: int = 2) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(Block() for _ in range(num_blocks)))


def cut(model: nn.Sequential, mesh: DeviceMesh, sequence: bool) -> nn.Sequential:
    """Apply tensor parallelism to every block; with `sequence` norms work on parts of the sequence."""
    for block in model:
        plan: dict[str, Any] = {"up": ColwiseParallel(), "down": RowwiseParallel()}
        if sequence:
            plan = {
                "before": SequenceParallel(), "up": ColwiseParallel(input_layouts=Shard(1)),
                "down": RowwiseParallel(output_layouts=Shard(1)), "after": SequenceParallel(use_local_output=False),
            }  # fmt: skip
        parallelize_module(block, mesh, plan)
    if sequence:
        parallelize_module(
            model, mesh, {"0": PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Shard(1))}
        )
    return model


def batch(place: int, step: int) -> torch.Tensor:
    return torch.randn(2, 4, WIDTH, generator=torch.Generator().manual_seed(1000 * step + place))


def differing(model: nn.Module, groups: list[Any]) -> list[str]:
    """Return the parameters that ranks of a group, which hold them whole, hold differently."""
    found = []
    for name, parameter in model.named_parameters():
        value: Any = parameter.detach()
        for group, is_cut in groups:
            if is_cut(name):
                continue
            own = (value.to_local() if hasattr(value, "to_local") else value).cpu().contiguous()
            rooms = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
            dist.all_gather(rooms, own, group=group)
            if not all(torch.equal(rooms[0], room) for room in rooms):
                found.append(name)
    return found


def is_cut(name: str) -> bool:
    return ".up." in f".{name}" or name.endswith("down.weight")


def never(name: str) -> bool:
    return False


def train(model: nn.Module, codec: str, place: int, sequence: Any = None) -> tuple[torch.Tensor, str]:
    """Return the last losses of a few steps with AdamW, and what went wrong."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    handle: Any = syncline.torch.synchronize(model, codec=codec, **QUIET)
    losses = []
    try:
        for step in range(STEPS):
            optimizer.zero_grad()
            x = batch(place, step).to(next(model.parameters()).device)
            if sequence is not None:
                x = x.chunk(sequence.size(), dim=1)[sequence.get_local_rank()]
            y: Any = model(x)
            loss = y.square().mean() + y.mean()
            loss = loss.full_tensor() if hasattr(loss, "full_tensor") else loss
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
    except SynclineError as error:
        return torch.tensor(losses), str(error)
    handle.close()
    return torch.tensor(losses), ""


def cells(num_ranks: int, device: str = "cpu") -> Iterator[tuple[str, Any]]:
    """Yield the meshes that so many ranks can make."""
    if num_ranks == 8:
        yield "HSDP TP", init_device_mesh(device, (2, 2, 2), mesh_dim_names=("replicas", "shards", "tp"))
        return
    names = {"TP": ("dp", "tp"), "SP": ("dp", "tp"), "PP": ("pp", "dp"), "": ("replicas", "shards")}
    for cell in CELLS:
        yield cell, init_device_mesh(device, (2, 2), mesh_dim_names=names[cell.partition(" ")[2]])


def made(cell: str, mesh: DeviceMesh) -> tuple[nn.Module, list[Any], int, Any]:
    """Return a cell's model, the groups whose members hold equal parameters, this rank's batch and how it is cut."""
    way, _, axis = cell.partition(" ")
    model = network().to(mesh.device_type)
    if axis == "PP":  # the stages of a pipeline are models of their own
        data = mesh["dp"]
        torch.manual_seed(mesh.get_local_rank("pp"))
    else:
        data = mesh["replicas", "shards"] if way == "HSDP" else mesh["dp"]
    if axis in ("TP", "SP"):
        cut(model, mesh["tp"], sequence=axis == "SP")
    groups: list[Any] = [] if axis not in ("TP", "SP") else [(mesh.get_group("tp"), is_cut)]
    if way == "DDP":
        groups.append((data.get_group(), never))
        return DistributedDataParallel(model, device_mesh=data, bucket_cap_mb=0.05), groups, data.get_local_rank(), None
    for block in model:
        fully_shard(block, mesh=data)
    fully_shard(model, mesh=data)
    if way == "HSDP":
        groups.append((mesh.get_group("replicas"), never))
    place = (
        data.get_local_rank() if way != "HSDP" else 2 * mesh.get_local_rank("replicas") + mesh.get_local_rank("shards")
    )
    return model, groups, place, mesh["tp"] if axis == "SP" else None


def through_host() -> None:
    """Let DTensor's and FSDP2's collectives work on copies in host memory: gloo has them for tensors of the host."""

    def copied(collective: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def perform(tensor: torch.Tensor, *rest: Any, **options: Any) -> torch.Tensor:
            return functional.wait_tensor(collective(tensor.cpu(), *rest, **options)).to(tensor.device)

        return perform

    def scatter(output: torch.Tensor, input: torch.Tensor, op: Any, group: Any = None, async_op: bool = False) -> Any:
        sums = torch.empty(output.shape, dtype=output.dtype)
        reduce_scatter(sums, input.cpu(), op=dist.ReduceOp.SUM, group=group)
        output.copy_(sums / dist.get_world_size(group) if op == dist.ReduceOp.AVG else sums)

    reduce_scatter: Any = dist.reduce_scatter_tensor
    vars(dist)["reduce_scatter_tensor"] = scatter
    names = ("all_reduce", "all_gather_tensor", "reduce_scatter_tensor", "all_gather_single", "reduce_scatter_single")
    for name in names:  # "single" since torch 2.12
        if hasattr(functional, name):
            vars(functional)[name] = copied(getattr(functional, name))


def run(
    rank: int, port: int, num_ranks: int = 4, codecs: tuple[str, ...] = CODECS, device: str = "cpu", out: str = ""
) -> dict[str, Any]:
    """Return, for every mesh and codec, the losses, which replicas differ at the end, and the error.

    Rank 0 writes each cell to the file `out` when it is done.
    """
    start(rank, num_ranks, port)
    if device == "cuda":
        torch.cuda.set_device(0)
        through_host()
    result: dict[str, Any] = {}
    for cell, mesh in cells(num_ranks, device):
        for codec in codecs if "PP" not in cell else FEW:
            model, groups, place, sequence = made(cell, mesh)
            try:
                losses, error = train(model, codec, place, sequence)
            except RuntimeError as wrong:
                losses, error = torch.zeros(0), str(wrong)
            differ = [] if error else differing(model, groups)
            result[f"{cell} {codec}"] = {"losses": losses.tolist(), "error": error, "differ": differ}
            if out and rank == 0:
                with Path(out).open("a") as file:
                    file.write(json.dumps({"cell": cell, "codec": codec, **result[f"{cell} {codec}"]}) + "\n")
    return result


def wrong(rank: int, port: int) -> dict[str, Any]:
    """A whole parameter drifts on one rank of an axis; a step is to be skipped; a rank has another learning rate."""
    start(rank, 4, port)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    result: dict[str, Any] = {"rank": rank}

    def attempt(codec: str, drifts: bool, **options: Any) -> str:
        model, _, place, _ = made("FSDP2 TP", mesh)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.02 if rank == 3 and not drifts else 0.01)
        handle: Any = None
        try:
            handle = syncline.torch.synchronize(model, codec=codec, **{**OPTIONS, **options})
            for step in range(4):
                optimizer.zero_grad()
                model(batch(place, step)).square().mean().backward()
                optimizer.step()
                if drifts and step == 1 and rank == 1:
                    drifting: Any = dict(model.named_parameters())["0.before.weight"]
                    with torch.no_grad():
                        drifting.to_local().add_(1e-6)
            handle.close()
        except SynclineError as error:
            if handle is not None:
                handle.abandon()
            return str(error)
        return ""

    model, *_ = made("FSDP2 TP", mesh)
    try:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        syncline.torch.DiLoCo(optimizer, model, every=2, group=mesh.get_group("dp"))
    except SynclineError as error:
        result["periodic"] = str(error)
    result["skip"] = attempt("sign", False, nan="skip")
    result["lr"] = attempt("int8", False)
    result["drift"] = attempt("int8", True)
    return result
