"""Each distinct kernel of captured ranks timed once on this machine's GPU, or CPU where the script runs on CPUs.

    python -m syncline.previewing.capture.measure CAPTURED OUT       # a folder that `preview --keep` filled; a file
    python -m syncline.previewing.capture.measure CAPTURED OUT 4     # on CPUs, of which four ranks share the cores

Needs torch (with CUDA for GPUs), what the script itself needs and nothing else. A kernel is launched with tensors of
the captured shapes, types and strides while a sleeping kernel holds the stream, so that what is timed is the GPU and
not the host.
It is timed twice: on tensors that the second-level cache still holds, and on ones that it does not. Then the script
runs for some steps (`own.py`), which says what its host does: start this in the folder the script was captured from.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from syncline.previewing.capture.arguments import Arguments, size_of
from syncline.previewing.capture.own import PHASES
from syncline.previewing.signature import signature_key

FORMAT = "kernel times 3"
SLEEP_HZ = 2.0e9  # clock of `torch.cuda._sleep`; a GPU that is slower sleeps longer
LONG_S, SHORT_S = 0.10, 0.01  # what a kernel of much arithmetic is run for, whose clock depends on it, and any other
COOL_S, BURST_S = 0.05, 0.004  # a rest, and what runs before the power limit lowers the clock
MOST_COPIES = 24
TELL_EVERY_S = 2.0
OWN_S = 180.0  # the longest that a rank of the script may take for its steps
HEAVY = ("mm", "attention", "convolution", "linear", "matmul")
LASTING_S, MOST_CALLS, ROUNDS = 0.01, 200, 3  # of an operator on a CPU
Call = Callable[[], object]


def main() -> None:
    """Time the kernels of the captures in a folder and write them."""
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: python -m syncline.previewing.capture.measure CAPTURED OUT [RANKS]")
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    files = sorted(folder.rglob("rank*.json")) if folder.is_dir() else [folder]
    if not files:
        sys.exit(f"{folder} holds no capture; make one with syncline preview --keep {folder}.")
    facts = json.loads(files[0].read_text(encoding="utf-8"))["facts"]
    if facts.get("device") == "cpu":
        found = on_processor(files, _threads(facts), int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    elif torch.cuda.is_available():
        found = measured(files)
    else:
        sys.exit("torch sees no CUDA GPU here; time the kernels where there is one, and give the file to --measured.")
    partial = out.with_suffix(".part")
    partial.write_text(json.dumps(found, indent=1))
    partial.replace(out)


def measured(files: list[Path]) -> dict[str, object]:
    """Return the times of all distinct kernels in the steps of captured ranks."""
    specs = _specs(files)
    import_module("torch.distributed.fsdp")  # registers the operators of FSDP2
    properties = torch.cuda.get_device_properties(0)
    rows = []
    with torch.no_grad():
        for key, spec in _announced(specs):
            rows.append({"key": key, "op": spec["op"], **_tried(spec, properties.L2_cache_size)})
    return {
        "syncline": FORMAT,
        "device": torch.cuda.get_device_name(),
        "memory_bytes": properties.total_memory,
        "sms": properties.multi_processor_count,
        "cache_bytes": properties.L2_cache_size,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "own": [_own(path) for path in files],
        "kernels": rows,
    }


def on_processor(files: list[Path], threads: int, ranks: int = 1) -> dict[str, object]:
    """Return the same of a script that runs on CPUs, with so many threads a rank, and ranks that share the cores."""
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)  # numbers that are scaled again and again vanish, which no step does
    import_module("torch.distributed.fsdp")
    rows = []
    with torch.no_grad():
        for key, spec in _announced(_specs(files)):
            try:
                rows.append({"key": key, "op": spec["op"], **_timed_on_cpu(spec)})
            except Exception as error:  # an operator that this torch has not
                rows.append({"key": key, "op": spec["op"], "error": _words(error)})
    environment = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    own = [_slowest(path, environment, ranks) for path in files]
    facts = _processor(threads)
    return {"syncline": FORMAT, **facts, "torch": torch.__version__, "own": own, "kernels": rows}


def _threads(facts: Mapping[str, Any]) -> int:
    """Return the threads of a rank: as its command says, as this environment does, or as torchrun sets them."""
    env = facts["env"]
    number = env.get("OMP_NUM_THREADS") or os.environ.get("OMP_NUM_THREADS")
    if number:
        return int(number)
    return 1 if int(env["LOCAL_WORLD_SIZE"]) > 1 else torch.get_num_threads()


def _processor(number: int) -> dict[str, object]:
    """Return what this machine is: its processor, its memory and the threads that were used."""
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    name = names[0].partition(":")[2].strip() if names else "a CPU"
    return {
        "device": f"{name}, {number} thread{'s' if number > 1 else ''}",
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "cache_bytes": 0,
        "cpu": {"threads": number, "cores": len(os.sched_getaffinity(0))},
    }


def _timed_on_cpu(spec: Mapping[str, Any]) -> dict[str, float]:
    """Return what an operator takes: the middle of some rounds of calls with the same tensors."""
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    if 2 * size_of(spec) > free:
        raise MemoryError(f"its tensors take {size_of(spec) / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free")
    call = Arguments(spec).call()
    call()
    once = _seconds_of(call, 1)
    number = max(1, min(MOST_CALLS, int(LASTING_S / max(once, 1e-7))))
    seconds = sorted(_seconds_of(call, number) for _ in range(ROUNDS))[ROUNDS // 2]
    return {"hot_s": seconds, "cold_s": seconds, "host_s": seconds}


def _seconds_of(call: Call, number: int) -> float:
    begun = time.perf_counter()
    for _ in range(number):
        call()
    return (time.perf_counter() - begun) / number


def _specs(files: list[Path]) -> dict[str, Mapping[str, Any]]:
    """Return the distinct kernels of the steps of captured ranks, by their keys."""
    specs: dict[str, Mapping[str, Any]] = {}
    for path in files:
        data = json.loads(path.read_text(encoding="utf-8"))
        begin = data["boundaries"][0] if data["boundaries"] else 0
        for number in {op[2] for op in data["ops"][begin:] if op[0] == "kernel"}:
            spec = data["signatures"][number]
            specs.setdefault(signature_key(spec["op"], spec["args"], spec["kwargs"], spec["tf32"]), spec)
    return specs


def _announced(specs: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the kernels, and print now and then how many are left."""
    shown_s = time.monotonic()
    for number, item in enumerate(specs.items()):
        if time.monotonic() - shown_s > TELL_EVERY_S:
            shown_s = time.monotonic()
            sys.stdout.write(f"timed {number:,} of {len(specs):,} kernels\n")
            sys.stdout.flush()
        yield item
    sys.stdout.write("running the script for some steps, to time its host\n")
    sys.stdout.flush()


def _slowest(path: Path, environment: Mapping[str, str], ranks: int) -> dict[str, object]:
    """Return what the slowest of so many ranks does that run at once: those that wait for each other go at its pace."""
    with ThreadPoolExecutor(ranks) as pool:
        rows = list(pool.map(lambda _: _own(path, environment), range(ranks)))
    wrong = next((row for row in rows if "error" in row), None)
    return wrong or max(rows, key=lambda row: sum(float(str(row[f"{phase}_s"])) for phase in PHASES))


def _own(path: Path, environment: Mapping[str, str] = MappingProxyType({})) -> dict[str, object]:
    """Return what the host of a rank does in a step of its script, or why that is not known."""
    facts = json.loads(path.read_text(encoding="utf-8"))["facts"]
    if "command" not in facts:
        return {"rank": facts["rank"], "error": "the capture is an older version's and does not name its script"}
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    package = os.pathsep.join([str(Path(__file__).parents[3]), *filter(None, [os.environ.get("PYTHONPATH")])])
    with tempfile.TemporaryDirectory(prefix="syncline-own-", dir=Path(sys.argv[2]).parent) as scratch:
        out = Path(scratch) / "own.json"
        command = [sys.executable, "-m", "syncline.previewing.capture.own", str(path), str(out)]
        try:
            ran = subprocess.run(  # noqa: S603 - the user's own script
                command, env={**os.environ, **environment, "PYTHONPATH": package}, stdin=subprocess.DEVNULL,
                capture_output=True, text=True, errors="replace", timeout=OWN_S, start_new_session=True,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"rank": facts["rank"], "error": f"no step within {OWN_S:g} s"}
        if not out.is_file():
            output = [line for line in ran.stderr.splitlines() if line.strip()]
            return {"rank": facts["rank"], "error": output[-1][:200] if output else "it printed nothing"}
        found: dict[str, object] = json.loads(out.read_text())
        return found


def _tried(spec: Mapping[str, Any], cache_bytes: int) -> dict[str, object]:
    try:
        return _timed(spec, cache_bytes)
    except Exception as error:  # an operator that this torch or this GPU has not; it keeps its modelled price
        torch.cuda.empty_cache()
        return {"error": _words(error)}


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"


def _timed(spec: Mapping[str, Any], cache_bytes: int) -> dict[str, object]:
    torch.backends.cuda.matmul.allow_tf32 = bool(spec["tf32"])
    size = size_of(spec)
    free, _ = torch.cuda.mem_get_info()
    if 2 * size > free:
        raise MemoryError(f"its tensors take {size / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free")
    heavy = any(word in spec["op"] for word in HEAVY)
    first = Arguments(spec).call()
    for _ in range(3):
        first()
    cool = {"cool_s": _cool([first])} if heavy else {}
    hot, host = _seconds([first], LONG_S if heavy else SHORT_S)
    copies = min(MOST_COPIES, int(free / 4 // max(size, 1)), -(-2 * cache_bytes // max(size, 1)))
    if copies < 2 or size < cache_bytes // MOST_COPIES:
        return {"hot_s": hot, "cold_s": hot, "host_s": host, **cool}
    calls = [first, *(Arguments(spec).call() for _ in range(copies - 1))]
    cold, _ = _seconds(calls, LONG_S if heavy else SHORT_S)
    return {"hot_s": hot, "cold_s": max(hot, cold), "host_s": host, **cool}


def _cool(calls: list[Call]) -> float:
    """Return what a call takes on a GPU that rested: at the clock that the power limit has not lowered yet."""
    _, once = _turn(calls, 4)
    time.sleep(COOL_S)
    return _turn(calls, max(3, int(BURST_S / max(once, 2e-6))))[1]


def _seconds(calls: list[Call], lasting_s: float) -> tuple[float, float]:
    """Return what one of the calls takes on the GPU, and on the host, in turns for about so long."""
    host, gpu = _turn(calls, 2 * len(calls))
    number = max(6, len(calls), min(400, int(lasting_s / max(gpu, 2e-6))))
    rounds = sorted(_turn(calls, number) for _ in range(3))
    return sorted(gpu for _, gpu in rounds)[1], min(host, *(h for h, _ in rounds))


def _turn(calls: list[Call], number: int) -> tuple[float, float]:
    """Return seconds of the host and of the GPU for one of `number` launches behind a sleeping kernel."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    torch.cuda._sleep(int(SLEEP_HZ * (0.002 + 40e-6 * number)))
    begin.record()
    started = time.perf_counter()
    for each in range(number):
        calls[each % len(calls)]()
    host = time.perf_counter() - started
    end.record()
    end.synchronize()
    return host / number, begin.elapsed_time(end) / 1e3 / number


if __name__ == "__main__":
    main()
