"""What `auto` costs where it holds plain DDP: steps of 3, 10 and 100 ms beside DDP, in turns, two pinned ranks.

Asked is at most 2 % over DDP. Times of a busy machine say little; the CPU time of all threads of a process, and the
shortest step of a block, say more. CASES="3 ms" picks cases.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).resolve().parent / "rig" / "overhead_rank.py"
NUM_RANKS = 2
CASES: dict[str, dict[str, int]] = {
    "3 ms": {"width": 192, "depth": 4, "batch": 256, "steps": 120},
    "10 ms": {"width": 256, "depth": 4, "batch": 640, "steps": 60},
    "100 ms": {"width": 512, "depth": 4, "batch": 1536, "steps": 10},
}


def run() -> dict[str, Any]:
    """Return a row for each length of step."""
    wanted = os.environ.get("CASES", ",".join(CASES)).split(",")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    processes = []
    for rank in range(NUM_RANKS):
        place = {"RANK": rank, "WORLD_SIZE": NUM_RANKS, "LOCAL_RANK": rank, "MASTER_ADDR": "127.0.0.1"}
        env = {**place, "MASTER_PORT": port, "OMP_NUM_THREADS": 1, "GLOO_SOCKET_IFNAME": "lo"}
        told = {**os.environ, **{key: str(value) for key, value in env.items()}}
        command = [sys.executable, str(SCRIPT), json.dumps({name: CASES[name] for name in wanted})]
        processes.append(subprocess.Popen(command, env=told, stdout=subprocess.PIPE, text=True))
    text = processes[0].communicate(timeout=3600)[0]
    codes = [process.wait(60) for process in processes]
    rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return {
        "asked_most_over_ddp": 0.02,
        "ranks": NUM_RANKS,
        "codes": codes,
        "cases": {row.pop("case"): row for row in rows},
    }
