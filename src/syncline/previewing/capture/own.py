"""What a script's own host does in a step: the script itself, run for some steps on this machine as one of its ranks.

    python -m syncline.previewing.capture.own CAPTURE OUT      # a rank's file of `preview --keep`; a file

Its operators run on real tensors; collectives of a world of more than one rank return at once. Time is taken of the
forward, the backward and the optimizer, each begun with an idle GPU; what the host waits for the GPU, and for a core
that others hold, is left out: what is left is Python, autograd, dispatch and launches, and on a CPU the operators.
Nothing reaches a network, nor a disk but in OUT's folder.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from syncline.previewing.capture import apart

WARM, TIMED, LONG_S, FEWEST = 10, 60, 40.0, 3
PHASES = ("forward", "backward", "optimizer")
END_WITH_PARENT = 1
READS = ("item", "tolist", "cpu", "numpy", "__bool__", "__float__", "__int__", "__index__")


class ThreadClock:
    """Seconds of a thread, as if a core were free whenever it wants one; `waited_s` is what it waited for one."""

    def __init__(self) -> None:
        try:
            self.file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        except OSError:  # a kernel without it: others' work counts
            self.file = -1

    def waited_s(self) -> float:
        return int(os.pread(self.file, 64, 0).split()[1]) / 1e9 if self.file >= 0 else 0.0

    def __call__(self) -> float:
        return time.perf_counter() - self.waited_s()


class Phases:
    """Seconds that the host spends in each phase of each step; a step goes from one's backward to the next one's."""

    def __init__(self, idle: Callable[[], object], done: Callable[[], object]) -> None:
        self.idle, self.done, self.clock = idle, done, ThreadClock()
        self.steps: list[dict[str, float]] = []
        self.waited: list[float] = []  # for a core, until the end of each step
        self.spent = dict.fromkeys(PHASES, 0.0)
        self.phase, self.since, self.begun = "forward", self.clock(), time.perf_counter()
        self.optimized = False  # since the last backward

    def turn(self, phase: str) -> str:
        """Begin a phase with an idle device; return the one that ended."""
        self.wait()
        before, self.phase = self.phase, phase
        if phase == "backward" and self.optimized:
            self._step()
        self.since = self.clock()
        return before

    def wait(self) -> None:
        """Let the device become idle, and leave out what that takes."""
        self.spent[self.phase] += self.clock() - self.since
        self.idle()
        self.since = self.clock()

    def stepped(self) -> None:
        """An optimizer has stepped."""
        self.turn("forward")
        self.optimized = True

    def _step(self) -> None:
        self.steps.append(self.spent)
        self.waited.append(self.clock.waited_s())
        self.spent, self.optimized = dict.fromkeys(PHASES, 0.0), False
        if len(self.steps) == 1:
            self.begun = time.perf_counter()
        late = len(self.steps) > FEWEST and time.perf_counter() - self.begun > LONG_S
        if late or len(self.steps) >= WARM + TIMED:
            self.done()

    def found(self) -> dict[str, object]:
        """Return the mean of each phase over the steps after the warm-up, and how they differ.

        That is the quickest and slowest step, and their deviation as one step differs from the next (a mean of such
        differences is 1.128 deviations), which knows nothing of a slow change. `waited_s` for a core is none of it.
        """
        warm = min(WARM, len(self.steps) // 2)
        kept = self.steps[warm:]
        if not kept:
            return {}
        mean = {f"{phase}_s": sum(step[phase] for step in kept) / len(kept) for phase in PHASES}
        whole = [sum(step.values()) for step in kept]
        turns = [abs(b - a) for a, b in itertools.pairwise(whole)]
        jitter = sum(turns) / len(turns) / 1.128 if turns else 0.0
        waited_s = (self.waited[-1] - self.waited[warm - 1]) / len(kept) if warm else 0.0
        steps = {"steps": len(kept), "least_s": min(whole), "most_s": max(whole), "jitter_s": jitter}
        return {**mean, **steps, "waited_s": waited_s}


def watched(phases: Phases) -> None:
    """Mark the phases, and leave out what the host waits for where it reads from the device."""
    import torch
    from torch.optim import optimizer as optimizers

    engine: Any = torch.autograd
    run_backward = engine._engine_run_backward

    def within(*args: Any, **kwargs: Any) -> Any:
        before = phases.turn("backward")
        try:
            return run_backward(*args, **kwargs)
        finally:
            phases.turn(before)

    engine._engine_run_backward = engine.graph._engine_run_backward = within

    def optimizes(*_: Any) -> None:
        phases.turn("optimizer")

    optimizers.register_optimizer_step_pre_hook(optimizes)
    optimizers.register_optimizer_step_post_hook(lambda *_: phases.stepped())

    def idle_first(read: Any) -> Any:
        @wraps(read)
        def inner(self: Any, *args: Any, **kwargs: Any) -> Any:
            if getattr(self, "is_cuda", True):
                phases.wait()
            return read(self, *args, **kwargs)

        return inner

    for name in READS:
        setattr(torch.Tensor, name, idle_first(getattr(torch.Tensor, name)))
    if torch.cuda.is_available():
        for holder in (torch.cuda.Stream, torch.cuda.Event):
            holder.synchronize = idle_first(holder.synchronize)  # type: ignore[method-assign]
        torch.cuda.synchronize = lambda *_, **__: phases.wait()  # type: ignore[assignment]


def main() -> None:
    """Run the script of a capture and write what its host took; the exit code is 0 where that is known.

    In a session of its own, as a rank is: where sessions share the cores, ranks that are timed get what ranks get.
    """
    ctypes.CDLL(None).prctl(END_WITH_PARENT, signal.SIGKILL)
    data = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    out, facts = Path(sys.argv[2]), data["facts"]
    os.environ.update(facts["env"], LOCAL_RANK="0")  # the one GPU that is used here
    apart.alone(out.parent)
    import torch

    from syncline.previewing.capture import alike, fence, launched, script
    from syncline.previewing.capture.log import Log

    gpu = torch.cuda.is_available()
    idle = torch.cuda.synchronize if gpu else lambda: None

    def done() -> None:
        found = phases.found()
        if found:
            partial = out.with_suffix(".part")
            partial.write_text(json.dumps({"rank": facts["rank"], **found}))
            partial.replace(out)
        sys.stdout.flush()
        os._exit(0 if found else 1)

    phases = Phases(idle, done)
    fence.outside(Log())
    alike.prepare()
    watched(phases)
    if facts.get("alone"):
        launched.unlaunched(facts["given"])
    try:
        script.run(facts["command"])
    except BaseException as error:  # where it has made some steps, they count
        traceback.print_exception(error)
    done()


if __name__ == "__main__":
    main()
