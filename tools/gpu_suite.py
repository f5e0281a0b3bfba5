"""Four ranks on one GPU in a gloo group: every codec under DDP and FSDP2, and what else training needs; one command.

    python tools/gpu_suite.py --out results           on cuda:0
    python tools/gpu_suite.py --out results --device cpu --only ddp/int8 diloco

Each case says what it found; ranks that fail are started again with the cases that are left. The table is
gpu_suite.json in the folder, with a profiler's trace of two steps.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
NUM_RANKS = 4
CODECS = ("fp32", "bf16", "fp16", "int8", "int4", "sign", "powersgd:rank=2")
CASES = (
    *(f"ddp/{codec}" for codec in CODECS), *(f"fsdp/{codec}" for codec in CODECS),
    "feedback/int4", "feedback/sign", "feedback/powersgd:rank=2",
    "nan/raise", "nan/skip", "checkpoint/ddp/sign", "checkpoint/fsdp/int4",
    "levels/int8", "levels/sign", "diloco/stream", "diloco/whole", "local_sgd",
    "crew", "sync_batch_norm", "scaler", "auto", "transport", "elastic", "profile/int8", "profile/bf16",
    "nan2d/int8", "nan2d/powersgd:rank=2",
)  # fmt: skip


def main() -> int:
    """Run the cases that were asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--only", nargs="+", help="cases, or how their names begin")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds that one case may take")
    chosen = parser.parse_args()
    left = [case for case in CASES if not chosen.only or any(case.startswith(one) for one in chosen.only)]
    chosen.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    while left:
        found = attempt(left, chosen.device, chosen.out, chosen.limit)
        rows += found
        left = left[len(found) :]
        report = {"benchmark": "gpu_suite", "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "device": chosen.device,
                  "command": "python tools/gpu_suite.py --out DIR", "ranks": NUM_RANKS,
                  "machine": f"{platform.machine()}, {os.cpu_count()} cores", "passed": sum(r["passed"] for r in rows),
                  "failed": sum(not r["passed"] for r in rows), "cases": rows}  # fmt: skip
        (chosen.out / "gpu_suite.json").write_text(json.dumps(report, indent=1) + "\n")
    print(f"{sum(row['passed'] for row in rows)} of {len(rows)} passed", flush=True)
    return 0 if all(row["passed"] for row in rows) else 1


def attempt(cases: list[str], device: str, out: Path, limit_s: float) -> list[dict[str, Any]]:
    """Run cases until one breaks the ranks; return their rows, that one's too."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    log = out / "gpu_suite.log"
    processes = []
    for rank in range(NUM_RANKS):
        environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(NUM_RANKS), "MASTER_ADDR": "127.0.0.1",
                       "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo", "SYNCLINE_RAILS": "lo",
                       "LOCAL_WORLD_SIZE": str(NUM_RANKS), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1",
                       "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}  # fmt: skip
        command = [sys.executable, str(HERE / "gpu" / "gpu_rank.py"), json.dumps([cases, device, str(out)])]
        with log.open("a") as errors:
            processes.append(
                subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True)
            )
    rows: list[dict[str, Any]] = []
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(processes[0], lines), daemon=True).start()
    wait_s = 2 * limit_s  # the first case waits for torch to be loaded
    with contextlib.suppress(queue.Empty):
        while len(rows) < len(cases) and (line := lines.get(timeout=wait_s)) is not None:
            if line.startswith("{"):
                rows.append(json.loads(line))
                print(told(rows[-1]), flush=True)
                wait_s = limit_s
    failed = bool(rows) and isinstance(rows[-1].get("error"), str)
    if len(rows) < len(cases) and not failed:
        with contextlib.suppress(subprocess.TimeoutExpired):
            processes[0].wait(1.0)
        how = "did not end" if processes[0].poll() is None else f"ended rank 0 with {processes[0].returncode}"
        rows.append({"case": cases[len(rows)], "passed": False, "error": f"{how}; see gpu_suite.log"})
        print(told(rows[-1]), flush=True)
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()
    return rows


def _listen(process: subprocess.Popen[str], lines: queue.SimpleQueue[str | None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line)
    lines.put(None)


def told(row: dict[str, Any]) -> str:
    """Return a case on one line."""
    rest = {key: value for key, value in row.items() if key not in ("case", "passed")}
    return f"{'ok    ' if row['passed'] else 'FAILED'} {row['case']:34} {json.dumps(rest)[:300]}"


if __name__ == "__main__":
    sys.exit(main())
