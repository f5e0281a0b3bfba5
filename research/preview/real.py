"""Scripts as they run on a real GPU, beside which previews are put: `python research/preview/real.py OUT [NAME ...]`.

Each script of `zoo.py`, `more.py` and `recipes.py`, or those named, runs unmodified as one rank while its optimizer's
steps are marked: some to warm up, some timed from first to last while the GPU's clock is read, some with the GPU
awaited after each (of which the host's part is kept), three under the profiler. OUT gets one JSON file: these times,
the most memory that was allocated, and every operator that launched kernels with its shapes, types, strides, kernels
and seconds.
"""

# mypy: ignore-errors
from __future__ import annotations

import itertools
import json
import os
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

    def stepped(self, *_: object) -> None:
        import torch

        number, left = len(self.marks) + 1, time.perf_counter()
        if number in (WARM, WARM + TIMED) or number > WARM + TIMED:
            torch.cuda.synchronize()
        self.marks.append(time.perf_counter())
        if number > WARM + TIMED:
            self.host.append(left - self.marks[-2])
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

        self.meter.terminate()
        free, awaited = self.marks[WARM - 1 : WARM + TIMED], self.marks[WARM + TIMED - 1 : WARM + TIMED + AWAITED]
        each = [b - a for a, b in itertools.pairwise(awaited)]
        read = [line.split(",") for line in self.meter.communicate()[0].splitlines() if line.count(",") == 1]
        self.record = {
            "gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
            "step_s": (free[-1] - free[0]) / TIMED, "awaited_step_s": statistics.median(each),
            "host_s": statistics.median(self.host[:AWAITED]),
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
    return {"gpu_busy_s": busy * 1e-6 / PROFILED, "gpu_kernels": len(spans) / PROFILED, "operators": listed}


def run(command: list[str], out: Path) -> None:
    """Run a script in this process and write what its steps took."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    os.environ.update(alone, MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    register_optimizer_step_post_hook(Watch(out).stepped)
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


def main() -> None:
    """Run the scripts, each in a child."""
    import torch  # noqa: F401 - once for all children
    import transformers  # noqa: F401

    sys.path.insert(0, str(HERE))
    import more
    import recipes
    import zoo

    out, began = Path(sys.argv[1]), time.monotonic()
    files = {name: f"{kept.__name__}.py" for kept in (zoo, more, recipes) for name in kept.SCRIPTS}
    found = {}
    for name in sys.argv[2:] or files:
        found[name] = forked([str(HERE / files[name]), name])
        out.write_text(json.dumps(found))
        row = found[name]
        said = (
            row.get("error")
            or f"{1e3 * row['step_s']:.2f} ms, busy {1e3 * row['gpu_busy_s']:.2f}, host {1e3 * row['host_s']:.2f}"
        )
        print(f"{time.monotonic() - began:.0f} s: {name}: {said}", flush=True)


if __name__ == "__main__":
    main()
