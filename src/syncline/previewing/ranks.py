"""The ranks of a script that matter, run beside each other as far as the machine allows.

Rank 0 is run, and whoever it and they pass activations to. A rank says who they are and what its stages pass on as soon
as that is known (of several stages, after its first step), so that the next one need not wait for its end. Rank 0
makes a warm-up and two steps; where those two are the same, one step after the warm-up of each other rank stands for
both.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from syncline.describe.plain import JsonObject
from syncline.fabric.catalog import Gpu
from syncline.previewing.child import EarlyWord, RankProcess
from syncline.previewing.launch import ScriptLaunch
from syncline.previewing.record import FEWER, STEPS, Capture, steps_alike

MOST_STAGES = 64
LOOK_S = 0.05
BESIDE_BYTES = 4 << 30
"""A rank is started beside another where so much memory is free."""


@dataclass(frozen=True)
class Runner:
    """How ranks are run: on which GPU, within which bounds, and who is told."""

    gpu: Gpu
    timeout_s: float
    memory_bytes: int
    tell: Callable[[str], None] = lambda _: None
    bucket_bytes: int = 0  # of DDP, instead of the script's own
    hybrid: bool = False  # FSDP that shards inside of hosts, instead of over all of them
    device: str = "cuda"  # or cpu, for a script without GPUs
    read_only: bool = True  # what the script writes is gone when it ends

    def stages(self, launch: ScriptLaunch, keep: Path | None = None) -> tuple[Capture, ...]:
        """Return captures of rank 0 and of all that it and they pass activations to."""
        found = self._run(launch, {0}, {}, keep, follow=True)
        if len(found) < 2 or steps_alike(found[0]):
            return found
        self.tell("steps differ: running the other ranks once more, with one step more")
        return self._run(launch, {0}, {}, keep, follow=True, fewest=STEPS)

    def others(self, launch: ScriptLaunch, known: tuple[Capture, ...], number: int) -> tuple[Capture, ...]:
        """Return captures of so many ranks alone, with the stages that are known: the last, the middle, and on."""
        passed = {stage: rows for each in known for stage, rows in each.facts.get("stages", {}).items()}
        order = [launch.world - 1, launch.world // 2, launch.world // 4, 1, launch.world // 3]
        ranks = [rank for rank in dict.fromkeys(order) if rank > 0 and rank not in {each.rank for each in known}]
        return self._run(launch, {*ranks[:number]}, passed, None, follow=False)

    def _run(
        self, launch: ScriptLaunch, wanted: set[int], passed: JsonObject, keep: Path | None, *, follow: bool,
        fewest: int = FEWER,
    ) -> tuple[Capture, ...]:  # fmt: skip
        found: dict[int, Capture] = {}
        running: dict[int, RankProcess] = {}
        begun: dict[int, int] = {}  # the last step of each rank
        silent: set[int] = set()  # ranks that have not said yet what the next one needs
        try:
            while wanted or running:
                for rank, child in [*running.items()]:
                    if child.ended():
                        found[rank] = child.capture(keep)
                        running.pop(rank).close()
                        word: EarlyWord | None = EarlyWord(found[rank].peers, found[rank].facts.get("stages", {}))
                    else:
                        word = child.early()
                        if (step := child.step()) > begun.get(rank, 0):
                            begun[rank] = step
                            self.tell(f"rank {rank}: step {step} of {fewest if rank else STEPS}")
                    if follow and word is not None:
                        silent.discard(rank)
                        wanted |= {*word.peers}
                        passed |= word.stages
                wanted -= {*found, *running}
                if len(found) + len(running) >= MOST_STAGES:
                    wanted.clear()
                while wanted and not silent and _has_room(len(running)):
                    rank = min(wanted)
                    wanted.remove(rank)
                    if follow:
                        silent.add(rank)
                    self.tell(f"running rank {rank} of {launch.world:,}")
                    running[rank] = RankProcess(
                        launch, rank, self.gpu, timeout_s=self.timeout_s, memory_bytes=self.memory_bytes,
                        stages=passed, bucket_bytes=self.bucket_bytes, device=self.device,
                        steps=fewest if rank else STEPS, read_only=self.read_only, hybrid=self.hybrid,
                    )  # fmt: skip
                time.sleep(LOOK_S)
        finally:
            for child in running.values():
                child.close()
        return tuple(found[rank] for rank in sorted(found))


def _has_room(running: int) -> bool:
    """Whether one more rank may run: the first always, another where a core and memory are free."""
    if not running:
        return True
    lines = Path("/proc/meminfo").read_text().splitlines()
    free_kib = next((int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), 0)
    return running < len(os.sched_getaffinity(0)) and free_kib * 1024 > BESIDE_BYTES
