"""codec="auto" on the rig: started without a rank it builds the hosts and a rank on each; each rank then trains.

auto_rank.py '{"rate_bps": 1e9, "fixed": ["plain"], "steps": 6, "auto_steps": 30, "rounds": 4}'
auto_rank.py '{"rate_bps": 1e9, "then_bps": 5e7, "auto_steps": 20, "then_steps": 25}'
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import syncline.torch
from rig import network
from rig.gpt import Batches, Gpt, corpus

NUM_HOSTS = 4
TURN = 6
"""Steps of one before it is the next one's turn."""
NEAR = 2.0
"""Plain DDP takes turns too unless it was this much slower."""
MODEL = {"width": 256, "depth": 6, "num_heads": 4, "context": 128}


def launch(order: str) -> int:
    """Build the hosts, start a rank on each, pass on what rank 0 says."""
    network.build(NUM_HOSTS)
    own = Path(__file__).resolve()
    shared = {"MASTER_ADDR": "10.7.0.1", "MASTER_PORT": "29500", "WORLD_SIZE": str(NUM_HOSTS),
              "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(own.parents[1]),
              "TORCH_CPP_LOG_LEVEL": "ERROR"}  # fmt: skip
    ranks = [
        network.start(host, [sys.executable, str(own), order], {**shared, "RANK": str(host)})
        for host in range(NUM_HOSTS)
    ]
    assert ranks[0].stdout is not None
    for line in ranks[0].stdout:
        sys.stdout.write(line)
        sys.stdout.flush()
    return max(rank.wait() for rank in ranks)


def work(order: dict[str, Any]) -> None:
    """Train under each fixed way, then under auto, then under the best and auto by turns; rank 0 prints a row each."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    text = corpus()
    network.shape(rank, order["rate_bps"])
    dist.barrier()
    fixed, usual = {}, {}
    for name in order.get("fixed", ()):
        fixed[name] = Trainer(name, text, order)
        usual[name] = _slowest(fixed[name].steps(order["steps"] + 2)[2:])
        fixed[name].say({"median_s": usual[name]})
    trainer = Trainer("auto", text, order)
    times = trainer.steps(order["auto_steps"])
    trainer.say({"median_s": _slowest(times[-order.get("steps", 6) :]), "settled_after": trainer.settled})
    if fixed:
        best = min(usual, key=lambda name: usual[name])
        names = [best, *(["plain"] if best != "plain" and usual["plain"] < NEAR * usual[best] else [])]
        again = {f"{best} again": Trainer(best, text, order)}  # two that are alike: what differs here is noise
        by_turns({name: fixed[name] for name in names} | {"auto": trainer} | again, order["rounds"])
    if "then_bps" in order:
        dist.barrier()
        network.shape(rank, order["then_bps"])
        dist.barrier()
        decided = trainer.handle.pilot.num_trials
        noticed = None
        took = []
        for step in range(order["then_steps"]):
            took += trainer.steps(1)
            pilot = trainer.handle.pilot
            if noticed is None and pilot.num_trials > decided:
                noticed = step + 1
        trainer.say({"noticed_after_steps": noticed, "first_s": _slowest(took[:3]), "median_s": _slowest(took[-4:])})
    dist.barrier()
    dist.destroy_process_group()


def by_turns(trainers: dict[str, Trainer], rounds: int) -> None:
    """Give each some steps in turn, so often, and print what a step took: what disturbs one disturbs all."""
    took: dict[str, list[float]] = {name: [] for name in trainers}
    spent: dict[str, list[float]] = {name: [] for name in trainers}
    for _ in range(rounds):
        for name, trainer in trainers.items():
            trainer.steps(1)  # finds the cache as the one before has left it
            before_s = time.process_time()
            took[name].append(statistics.fmean(trainer.steps(TURN)))
            spent[name].append((time.process_time() - before_s) / TURN)
            dist.barrier()
    means = {name: _slowest(times) for name, times in took.items()}
    processor = {name: _slowest(times) for name, times in spent.items()}
    if dist.get_rank() == 0:
        row = {"method": "by turns", "steps": TURN, "mean_s": means, "processor_s": processor, "rounds_s": took}
        print(json.dumps(row | {"why": trainers["auto"].handle.why()}), flush=True)


class Trainer:
    """One model under one way of synchronising."""

    def __init__(self, name: str, text: torch.Tensor, order: dict[str, Any]) -> None:
        torch.manual_seed(0)
        self.name, self._order = name, order
        self._model = DistributedDataParallel(Gpt(**MODEL), bucket_cap_mb=4.0, gradient_as_bucket_view=True)
        self._batches = Batches(text, dist.get_rank(), 1, 128)
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=3e-4)
        self.settled = 0
        self.handle: Any = None
        began = time.perf_counter()
        if name == "auto":
            self.handle = syncline.torch.synchronize(self._model, codec="auto", check_every=0)
        elif name != "plain":
            self.handle = syncline.torch.synchronize(self._model, codec=name, check_every=0, warmup=0)
        self._start_s = time.perf_counter() - began

    def steps(self, count: int) -> list[float]:
        """Return the seconds of so many steps."""
        times = []
        for _ in range(count):
            began = time.perf_counter()
            self._model(self._batches.next()).backward()
            self._optimizer.step()
            self._optimizer.zero_grad()
            times.append(time.perf_counter() - began)
            if self.name == "auto" and not self.settled and self.handle.pilot.phase == "hold":
                self.settled = len(times)
        return times

    def say(self, figures: dict[str, Any]) -> None:
        """Print a row, on rank 0."""
        if dist.get_rank():
            return
        row = {"method": self.name, "rate_bps": self._order["rate_bps"] or 0, "start_s": self._start_s, **figures}
        if self.name == "auto":
            pilot = self.handle.pilot
            row |= {"codec": pilot.codec, "why": self.handle.why(), "tried_s": pilot.best_s}
        print(json.dumps(row), flush=True)


def _slowest(times: list[float]) -> float:
    """Return the median step of the slowest rank."""
    rows: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(rows, statistics.median(times))
    return float(max(rows))


if __name__ == "__main__":
    if "RANK" not in os.environ:
        sys.exit(launch(sys.argv[1]))
    work(json.loads(sys.argv[1]))
    os._exit(0)  # threads of a backend that outlives its group must not hold the rank back
