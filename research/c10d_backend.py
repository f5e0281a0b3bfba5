"""Syncline's exchange as a c10d backend, beside the same exchange as DDP's communication hook: what a step takes.

    python -m research.c10d_backend                     two ranks on loopback, each on a core of its own
    python -m research.c10d_backend --link 1GbE         two hosts of a lab

`dist.Backend.register_backend` takes a `ProcessGroup` written in Python, and DDP, FSDP2 and DTensor then call it
without a line of ours in the model. It sees flat buffers alone: no parameter, no step, no optimizer. The decision that
follows is docs/decisions/hook-not-backend.md.
"""

from __future__ import annotations

import argparse
import datetime
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TURNS, STEPS = 8, 6
WAYS = ("gloo", "hook fp32", "backend fp32", "hook int8", "backend int8", "gloo again")


def backend_class() -> Any:
    """Return the group: all-reduces of large float32 buffers through syncline's exchange, all else through gloo."""
    import torch
    from torch.distributed import distributed_c10d

    from syncline.runtime.sync.bucket import Layout, Order
    from syncline.runtime.sync.settings import Settings
    from syncline.runtime.sync.synchronizer import Synchronizer
    from syncline.runtime.wire.links import TeamLinks
    from syncline.runtime.wire.team import Team

    c10d: Any = distributed_c10d

    class Done(c10d.Work):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.future: Any = torch.futures.Future()

        def wait(self, timeout: Any = None) -> bool:
            self.future.wait()
            return True

        def get_future(self) -> Any:
            return self.future

    class SynclineGroup(c10d.ProcessGroup):  # type: ignore[misc]
        codec = "int8"

        def __init__(self, store: Any, rank: int, size: int, timeout: datetime.timedelta) -> None:
            super().__init__(rank, size)
            self._gloo = c10d.ProcessGroupGloo(c10d.PrefixStore("gloo", store), rank, size, timeout)
            cpu = torch.device("cpu")
            team = Team("backend", range(size), rank, cpu, timeout.total_seconds(), store)
            settings = Settings(codec=self.codec, watch_s=0.0, check_every=0)
            self._handle = Synchronizer(settings, TeamLinks(team, cpu), "backend", in_order=True)
            self._known: dict[tuple[int, int], int] = {}

        def allreduce(self, tensors: list[torch.Tensor], opts: Any = None) -> Any:
            (buffer,) = tensors
            if buffer.dtype != torch.float32 or buffer.numel() < 1 << 14:
                return self._gloo.allreduce(tensors, opts) if opts is not None else self._gloo.allreduce(tensors)
            index = self._known.setdefault((buffer.data_ptr(), buffer.numel()), len(self._known))
            work, layout = Done(), Layout((f"buffer {index}",), ((buffer.numel(),),))

            def done(failure: BaseException | None) -> None:
                if failure is None:
                    work.future.set_result([buffer.mul_(self.size())])
                else:
                    work.future.set_exception(failure)

            self._handle.average(Order(index, buffer, layout, self._handle.open_step(), done, True))
            return work

        def broadcast(self, tensors: list[torch.Tensor], opts: Any = None) -> Any:
            return self._gloo.broadcast(tensors, opts)

        def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
            return self._gloo.allgather(outputs, inputs)

        def barrier(self, opts: Any = None) -> Any:
            return self._gloo.barrier()

        def getBackendName(self) -> str:
            return "syncline"

    return SynclineGroup


def work(rank: int, size: int, layers: int, width: int) -> None:
    """Train the same model under each way by turns; rank 0 prints seconds and processor seconds of a step."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    import syncline.torch

    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=size)
    made = backend_class()
    creator: Any = lambda store, rank, size, timeout: made(store, rank, size, timeout)  # noqa: E731
    dist.Backend.register_backend("syncline", creator, devices=["cpu"])
    models: dict[str, Any] = {}
    for way in WAYS:
        kind, _, codec = way.partition(" ")
        made.codec = codec if kind == "backend" else "fp32"
        group = dist.new_group(backend="syncline") if kind == "backend" else None
        torch.manual_seed(0)
        bare = nn.Sequential(*[part for _ in range(layers) for part in (nn.Linear(width, width), nn.Tanh())])
        model = DistributedDataParallel(bare, process_group=group, bucket_cap_mb=4, gradient_as_bucket_view=True)
        if kind == "hook":
            syncline.torch.synchronize(model, codec=codec, check_every=0, watch_s=0.0)
        models[way] = model, torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(16, width, generator=torch.Generator().manual_seed(rank))
    took: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    for turn in range(TURNS + 1):
        for way, (model, optimizer) in models.items():
            dist.barrier()
            began, spent = time.perf_counter(), time.process_time()
            for _ in range(STEPS):
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
            if turn:  # in the first DDP rebuilds buckets
                took[way].append(((time.perf_counter() - began) / STEPS, (time.process_time() - spent) / STEPS))
    if rank == 0:
        weights = {w: float(sum(p.detach().double().sum() for p in m.parameters())) for w, (m, _) in models.items()}
        for way, rows in took.items():
            wall_s, cpu_s = (statistics.median(column) for column in zip(*rows, strict=True))
            print(json.dumps({"way": way, "step_s": wall_s, "cpu_s": cpu_s, "weights": weights[way]}), flush=True)
    dist.barrier()
    os._exit(0)


def _rank(rank: int, port: int, layers: int, width: int) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    os.sched_setaffinity(0, {rank % (os.cpu_count() or 1)})
    work(rank, 2, layers, width)


def main() -> None:
    """Start two ranks on loopback, or on two hosts of a lab."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--link", default="", help="of each host in a lab; left out: loopback")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--in-lab", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.in_lab:
        work(int(os.environ["RANK"]), 2, chosen.layers, chosen.width)
    elif chosen.link:
        from syncline.fabric import load
        from syncline.lab import Lab

        kind = chosen.link
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "cluster.yaml")
            path.write_text(
                f"hosts: 2\nhost: {{gpu: H100, gpus: 1, nics: 1, link: {kind}}}\nnetwork: fat-tree {kind}\n"
            )
            with Lab(load(path)) as lab:
                command = [
                    sys.executable,
                    __file__,
                    "--in-lab",
                    "--layers",
                    str(chosen.layers),
                    "--width",
                    str(chosen.width),
                ]
                lab.run(command, timeout_s=500.0, on_line=lambda process, stream, line: print(line, flush=True))
    else:
        from syncline.host.ports import meeting_port

        port, context = meeting_port(), multiprocessing.get_context("spawn")
        ranks = [context.Process(target=_rank, args=(r, port, chosen.layers, chosen.width)) for r in range(2)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join(500)


if __name__ == "__main__":
    main()
