"""Scripts as they run on a real GPU, beside which previews are put: `python research/preview/real.py OUT [NAME ...]`.

Each script of `zoo.py`, `more.py`, `recipes.py`, `library.py` and `kinds.py`, or those named, runs unmodified as one
rank while its optimizer's steps are marked: some to warm up, some timed from first to last while the GPU's clock is
read, some with the GPU awaited after each (of which the host's part is kept, by phase, with what it waited for values),
three under the profiler. OUT gets one JSON file: these times, the most memory that was allocated, and every operator
that launched kernels with its shapes, types, strides, kernels and seconds.
"""

# mypy: ignore-errors
from __future__ import annotations

import itertools
import json
import os
import re
import runpy
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

WARM, TIMED, AWAITED, PROFILED = 12, 16, 8, 3
LIMIT_S = 70.0  # a script is ended after so long
METER = ["nvidia-smi", "--query-gpu=clocks.sm,power.draw.instant", "--format=csv,noheader,nounits", "--loop-ms=50"]
HERE = Path(__file__).parent


class Watch:
    """Counts the steps of a script and writes what they took."""

    def __init__(self, out: Path) -> None:
        self.out, self.marks, self.host, self.record = out, [], [], {}
        self.spent = {"backward": 0.0, "optimizer": 0.0, "reading": 0.0}  # of this step
        self.phases, self.depth = [], 0

    def timing(self, what, fn):
        """Return a function that adds what its outermost call takes to a phase of the step."""

        def timed(*args, **kwargs):
            self.depth += 1
            begin = time.perf_counter()
            try:
                return fn(*args, **kwargs)
            finally:
                self.depth -= 1
                if not self.depth:
                    self.spent[what] += time.perf_counter() - begin

        return timed

    def begins(self, *_: object) -> None:
        self.begun = time.perf_counter()

    def stepped(self, *_: object) -> None:
        import torch

        number, left = len(self.marks) + 1, time.perf_counter()
        self.spent["optimizer"] += left - self.begun
        if number in (WARM, WARM + TIMED) or number > WARM + TIMED:
            torch.cuda.synchronize()
        self.marks.append(time.perf_counter())
        if number > WARM + TIMED:
            self.host.append(left - self.marks[-2])
            self.phases.append(dict(self.spent))
        self.spent = dict.fromkeys(self.spent, 0.0)
        if number == 3:
            self.meter = subprocess.Popen(METER, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        elif number == WARM:
            torch.cuda.reset_peak_memory_stats()
        elif number == WARM + TIMED + AWAITED:
            self._timed()
            self.profiler = torch.profiler.profile(record_shapes=True)
            self.profiler.__enter__()
        elif number == WARM + TIMED + AWAITED + PROFILED:
            self.profiler.__exit__(None, None, None)
            self.out.write_text(json.dumps(self.record | operators(self.profiler)))
            os._exit(0)

    def _timed(self) -> None:
        import torch
        import transformers

        self.meter.terminate()
        free, awaited = self.marks[WARM - 1 : WARM + TIMED], self.marks[WARM + TIMED - 1 : WARM + TIMED + AWAITED]
        each = [b - a for a, b in itertools.pairwise(awaited)]
        read = [line.split(",") for line in self.meter.communicate()[0].splitlines() if line.count(",") == 1]
        self.record = {
            "gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
            "transformers": transformers.__version__,
            "step_s": (free[-1] - free[0]) / TIMED, "awaited_step_s": statistics.median(each),
            "host_s": statistics.median(self.host[:AWAITED]),
            **{f"{what}_s": statistics.median(each[what] for each in self.phases[:AWAITED]) for what in self.spent},
            "clock_MHz": statistics.median(float(mhz) for mhz, _ in read) if read else None,
            "peak_bytes": torch.cuda.max_memory_allocated(), "reserved_bytes": torch.cuda.max_memory_reserved(),
        }  # fmt: skip


def operators(profiler) -> dict[str, object]:
    """Return the operators that launched kernels, the longest first, and how long the GPU was busy in a step."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    ops = {
        e["args"]["External id"]: e for e in events if e.get("cat") == "cpu_op" and "External id" in e.get("args", {})
    }
    rows, spans = {}, []
    for event in events:
        if event.get("cat") not in ("kernel", "gpu_memcpy", "gpu_memset"):
            continue
        spans.append((event["ts"], event["ts"] + event["dur"]))
        op = ops.get(event["args"].get("External id"))
        args = op["args"] if op else {}
        shape = [args.get(key) for key in ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")]
        name = op["name"] if op else "?"
        key = json.dumps([name, *shape])
        said = dict(zip(("dims", "types", "strides", "values"), shape, strict=True))
        row = rows.setdefault(key, {"op": name, **said, "kernels": {}, "seconds": 0.0})
        row["kernels"][event["name"][:70]] = row["kernels"].get(event["name"][:70], 0) + 1
        row["seconds"] += event["dur"] * 1e-6 / PROFILED
    calls = {}
    for op in ops.values():
        args = op["args"]
        shape = [args.get(key) for key in ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")]
        key = json.dumps([op["name"], *shape])
        calls[key] = calls.get(key, 0) + 1
    for key, row in rows.items():
        row["calls"] = calls.get(key, 0) / PROFILED
    busy, until = 0.0, 0.0
    for begin, end in sorted(spans):
        busy += max(0.0, end - max(begin, until))
        until = max(until, end)
    listed = sorted(rows.values(), key=lambda row: -row["seconds"])
    found = {"gpu_busy_s": busy * 1e-6 / PROFILED, "gpu_kernels": len(spans) / PROFILED}
    return found | {"traced_host": on_host(events), "operators": listed}


def on_host(events) -> dict[str, float]:
    """Return what the host did in a step under the profiler: operators by thread, launches, waits for the GPU."""
    found = {"launches": 0, "launch_s": 0.0, "waited_s": 0.0}
    for event in events:
        if event.get("cat") in ("cuda_runtime", "cuda_driver"):
            name, seconds = event["name"], event["dur"] * 1e-6
            what = "waited_s" if "Synchronize" in name else "launch_s" if "Launch" in name else ""
            if what:
                found[what] += seconds
                found["launches"] += what == "launch_s"
    threads, until = {}, {}
    for op in sorted((e for e in events if e.get("cat") == "cpu_op"), key=lambda e: e["ts"]):
        row = threads.setdefault(op["tid"], {"operators": 0, "outermost": 0, "outermost_s": 0.0})
        row["operators"] += 1
        if op["ts"] >= until.get(op["tid"], 0.0):
            until[op["tid"]] = op["ts"] + op["dur"]
            row["outermost"] += 1
            row["outermost_s"] += op["dur"] * 1e-6
    most = sorted(threads.values(), key=lambda row: -row["operators"])[:2]
    each = {f"{key}_{n}": value for n, row in enumerate(most) for key, value in row.items()}
    return {key: value / PROFILED for key, value in (found | each).items()}


def run(command: list[str], out: Path) -> None:
    """Run a script in this process and write what its steps took."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    os.environ.update(alone, MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    watch = Watch(out)
    register_optimizer_step_pre_hook(watch.begins)
    register_optimizer_step_post_hook(watch.stepped)
    torch.autograd.backward = watch.timing("backward", torch.autograd.backward)
    torch.Tensor.item = watch.timing("reading", torch.Tensor.item)
    sys.argv = command
    runpy.run_path(command[0], run_name="__main__")


def forked(command: list[str]) -> dict[str, object]:
    """Run a script in a child that has torch imported already; return what it wrote, or its last words."""
    with tempfile.TemporaryDirectory() as scratch:
        out, words = Path(scratch) / "out.json", Path(scratch) / "err"
        child = os.fork()
        if child == 0:
            fd = os.open(words, os.O_CREAT | os.O_WRONLY)
            os.dup2(fd, 1)
            os.dup2(fd, 2)
            try:
                run(command, out)
            except BaseException:
                traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        ends = time.monotonic() + LIMIT_S
        while time.monotonic() < ends and os.waitpid(child, os.WNOHANG)[0] == 0:
            time.sleep(0.05)
        if time.monotonic() >= ends:
            os.kill(child, 9)
            os.waitpid(child, 0)
        return json.loads(out.read_text()) if out.exists() else {"error": words.read_text()[-1500:]}


def files() -> dict[str, str]:
    """Return the file of each script by its name."""
    return {
        name: str(HERE / f"{kind}.py")
        for kind in ("zoo", "more", "recipes", "library", "kinds")
        for name in re.findall(r"^@script\ndef (\w+)", (HERE / f"{kind}.py").read_text(), re.MULTILINE)
    }


def main() -> None:
    """Run the scripts, each in a child."""
    import torch  # noqa: F401 - once for all children
    import transformers  # noqa: F401

    out, began = Path(sys.argv[1]), time.monotonic()
    found = {}
    for name in sys.argv[2:] or files():
        found[name] = forked([files()[name], name])
        out.write_text(json.dumps(found))
        row = found[name]
        said = (
            row.get("error")
            or f"{1e3 * row['step_s']:.2f} ms, busy {1e3 * row['gpu_busy_s']:.2f}, host {1e3 * row['host_s']:.2f}"
        )
        print(f"{time.monotonic() - began:.0f} s: {name}: {said}", flush=True)


if __name__ == "__main__":
    main()
