"""One rank of a script on a real network: a few of its steps traced, then more of them timed.

    python -m syncline.previewing.capture.rehearsed SPEC

A step ends where a preview's does: when a model is called after an optimizer has stepped. Ranks end after the same
step, each once all have written what they measured: no rank is cut off from one that still receives.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

WARM, TRACED = 3, 2
BEFORE = WARM + 1 + TRACED + 1
"""Steps that do not count: warm-up, the profiler's start, those that are traced, and the one that writes the trace."""
LEAST = 2
"""Timed steps without which nothing is said."""
MEET_S, LOOK_S = 60.0, 0.05


class RehearsedRank:
    """Marks the steps of a rank, traces some, and ends it."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self.folder, self.steps = Path(spec["folder"]), int(spec["steps"])
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.marks: list[float] = []
        self.stepped = True  # the first call of a model begins the first step
        self.profiler: Any = None

    def prepare(self) -> None:
        import torch
        from torch.optim import optimizer as optimizers

        self.torch: Any = torch
        hooks: Any = torch.nn.modules.module
        hooks.register_module_forward_pre_hook(self._called)
        optimizers.register_optimizer_step_post_hook(self._optimized)
        torch.multiprocessing.spawn = _no_ranks_of_its_own  # type: ignore[assignment]

    def _optimized(self, *_: Any) -> None:
        self.stepped = True

    def _called(self, module: Any, _: Any) -> None:
        if not self.stepped or not self.torch.is_grad_enabled() or not any(True for _ in module.parameters()):
            return
        self.stepped = False
        self.marks.append(time.monotonic())
        done = len(self.marks) - 1
        if self.rank == 0:
            (self.folder / "progress").write_text(f"step {done} of {BEFORE + self.steps}")
        if done == WARM:
            self._trace()
        elif self.profiler is not None:
            self.profiler.step()
            if done == WARM + 1 + TRACED:
                self.profiler.stop()
                self.profiler = None
        if done == BEFORE + self.steps:
            self.end()

    def _trace(self) -> None:
        made = self.torch.profiler
        self.profiler = made.profile(
            activities=[made.ProfilerActivity.CPU],
            schedule=made.schedule(wait=0, warmup=1, active=TRACED, repeat=1),
            on_trace_ready=lambda found: found.export_chrome_trace(str(self.folder / f"trace{self.rank}.json")),
            record_shapes=True,
        )
        self.profiler.start()

    def end(self) -> NoReturn:
        """Write the steps, wait for the other ranks to have done so, and end."""
        found = self.folder / f"rank{self.rank}.json"
        found.with_suffix(".part").write_text(json.dumps({"marks": self.marks}))
        found.with_suffix(".part").replace(found)
        until = time.monotonic() + MEET_S
        while len(list(self.folder.glob("rank*.json"))) < self.world and time.monotonic() < until:
            time.sleep(LOOK_S)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _no_ranks_of_its_own(*_: Any, **__: Any) -> NoReturn:
    raise RuntimeError(
        "the script starts its ranks itself (mp.spawn), all of them on each host: let it read RANK and WORLD_SIZE, and "
        "start it with torchrun"
    )


def main() -> None:
    """Run the script of a spec as the rank that the environment names."""
    from syncline.previewing.capture import script

    spec = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    rank = RehearsedRank(spec)
    rank.prepare()
    try:
        script.run(spec["command"])
    except SystemExit as stopped:
        if stopped.code not in (None, 0):
            raise
    except BaseException as error:
        traceback.print_exception(error)
        sys.stderr.flush()
        os._exit(1)  # a thread of gloo that waits for this rank would keep it
    rank.end()


if __name__ == "__main__":
    main()
