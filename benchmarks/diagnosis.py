"""How fast logs are read and how well faults are told: MB/s a core, recall and precision.

    python benchmarks/run.py diagnosis

Speed is measured in CPU seconds on one core on four logs of 1 GB: what a cluster leaves (steps of several frameworks,
NCCL at INFO, loggers, progress bars, the kernel, warnings, tracebacks), NCCL at INFO with training steps (few lines
matter), nothing but channel lines (every line matters), and nothing but one warning (a flood). Quality is counted on
the kept logs of real problems (those held out while rules were written apart), on every fault of the library planted
in healthy logs, alone and two at a time (`audit.py` counts on captured trees).
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from tests.drill.measure import measure_logs

from syncline.diagnosis import shipped_rules
from syncline.diagnosis.examples import found_in
from syncline.logs.causes import arrange
from syncline.logs.judge import judge
from syncline.logs.reading import Reading
from syncline.logs.source import BLOCK_BYTES

KEPT = Path(__file__).resolve().parents[1] / "tests" / "logs" / "logs.yaml"
SIZE_BYTES = 1_000_000_000


def mixed_lines(count: int) -> Iterator[str]:
    """Yield what a long run leaves: communicators made now and then, and steps."""
    for i in range(count):
        host, gpu = i % 64, i % 8
        who = f"node{host:03d}:{1000 + gpu}:{2000 + gpu} [{gpu}] NCCL INFO"
        rank = host * 8 + gpu
        yield f"{who} Channel {i % 32:02d}/0 : {rank}[{gpu}] -> {rank + 1}[{(gpu + 1) % 8}] via P2P/CUMEM/read"
        yield f"{who} Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1 [2] 1/-1/-1->0->-1 [3] 1/-1/-1->0->-1"
        for step in range(6):
            yield (f"[2026-11-15 05:3{i % 10}:00,{i % 1000:03d}] iteration {6 * i + step:8d}/ 500000 | "
                   f"samples: {i * 1024} | iteration (ms): {5000 + i % 100}.3 | lm loss: 2.{i % 1000:03d}")  # fmt: skip
        if i % 50 == 0:
            yield f"{who} Channel {i % 32:02d}/0 : {rank}[{gpu}] -> {rank + 8}[{gpu}] [send] via NET/IB/{gpu}/GDRDMA"


REALISTIC = (
    (300, "[{stamp}] iteration {i:8d}/ 500000 | consumed samples: {i:12d} | elapsed time per iteration (ms): 50{two}.3 "
          "| lm loss: 2.{two} | grad norm: 0.{two} | number of skipped iterations: 0 | number of nan iterations: 0"),
    (100, "{{'loss': 1.{i}, 'grad_norm': 0.{two}, 'learning_rate': 2e-05, 'epoch': 0.{two}}}"),
    (100, "{who} NCCL INFO Channel {gpu:02d}/0 : {rank}[{gpu}] -> {next}[{gpu}] [send] via NET/IB/{gpu}/GDRDMA"),
    (100, "{who} NCCL INFO Trees [0] 1/-1/-1->{rank}->-1 [1] 1/-1/-1->{rank}->-1 [2] 1/-1/-1->{rank}->9"),
    (200, "[rank{rank}]: {stamp} - INFO - trainer.shard {i}: prefetch queue {two}, cache hit, connection established"),
    (100, "Epoch 3:  {two}%|#####     | {i}/250000 [01:00<12:48, {gpu}.54it/s, v_num=mu23, loss=2.3{two}]"),
    (60, 'Nov 15 05:30:{two} node{host:03d} kernel: [{i}.678901] audit: type=1400 apparmor="ALLOWED" pid={i}'),
    (35, "[rank{rank}]: {stamp} WARNING dataloader.py:{two} worker {gpu} is slow: {two} ms; retry 1 of 3 succeeded"),
    (3, '[rank{rank}]:   File "/opt/train/loop.py", line {two}, in step\n[rank{rank}]: ValueError: bad sample {i}'),
    (2, "{who} misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.0.0.{host}<4{two}> failed : "
        "Connection refused"),
)  # fmt: skip
"""What the jobs and hosts of a cluster leave in one place: lines in a thousand, and their form."""


def realistic_lines(count: int) -> Iterator[str]:
    """Yield lines of all forms, mixed; one in 200 is an error."""
    forms = [form for share, form in REALISTIC for _ in range(share)]
    for i in range(count):
        host, gpu = i * 7919 % 64, i % 8
        yield forms[i * 2_654_435_761 % 1000].format(
            i=i, host=host, gpu=gpu, rank=8 * host + gpu, next=8 * host + gpu + 8, two=f"{i * 31 % 100:02d}",
            stamp=f"2026-11-15 {i // 3600 % 24:02d}:{i // 60 % 60:02d}:{i % 60:02d},{i % 1000:03d}",
            who=f"node{host:03d}:{1000 + gpu}:{2000 + gpu} [{gpu}]",
        )  # fmt: skip


def channel_lines(count: int) -> Iterator[str]:
    """Yield lines of which each must be looked at."""
    for i in range(count):
        host, gpu = i % 64, i % 8
        yield (f"node{host:03d}:{1000 + gpu}:{2000 + gpu} [{gpu}] NCCL INFO Channel {i % 32:02d}/0 : "
               f"{host * 8 + gpu}[{gpu}] -> {host * 8 + gpu + 8}[{gpu}] [send] via NET/IB/{gpu}/GDRDMA")  # fmt: skip


def warning_lines(count: int) -> Iterator[str]:
    """Yield a flood of one warning."""
    for i in range(count):
        yield (f"node{i % 64:03d}:1003:2003 [3] transport/net_ib.cc:1299 NCCL WARN NET/IB : Got completion from peer "
               f"10.0.0.{i % 64}<44206> with status=5 opcode=0 len=0 vendor err 249 (Recv)")  # fmt: skip


def repeated(piece: bytes, size_bytes: int) -> Iterator[bytes]:
    """Yield a log of this size out of one piece, in blocks as a file gives them."""
    block = piece * max(1, BLOCK_BYTES // len(piece))
    for _ in range(max(1, size_bytes // len(block))):
        yield block


def speed(lines: Iterator[str], size_bytes: int) -> dict[str, float]:
    """Read a log of this size on one core."""
    piece = ("\n".join(lines) + "\n").encode()
    reading = Reading(shipped_rules())
    start = time.process_time()
    reading.read("log", repeated(piece, size_bytes), [])
    arrange(judge(reading.tallies))
    seconds = time.process_time() - start
    done = max(1, size_bytes // (len(piece) * max(1, BLOCK_BYTES // len(piece)))) * len(piece)
    read = done * max(1, BLOCK_BYTES // len(piece))
    return {"MBps_per_core": read / seconds / 1e6, "seconds_per_GB": seconds / read * 1e9, "lines": reading.num_lines}


def quality() -> dict[str, Any]:
    """Count hits, misses and false alarms on the kept logs."""
    book = shipped_rules()
    kept = yaml.safe_load(KEPT.read_text("utf-8"))
    rows: dict[str, Any] = {}
    for name, held_out in (("written_with", False), ("held_out", True)):
        logs = [log for log in kept if log.get("held_out", False) == held_out]
        found = [(set(log["expect"]), set(found_in(log["log"], book))) for log in logs]
        hits = sum(len(expect & told) for expect, told in found)
        extra = sum(len(told - expect) for expect, told in found)
        wanted = sum(len(expect) for expect, _ in found)
        rows[name] = {
            "logs": len(logs), "healthy_logs": sum(not log["expect"] for log in logs), "wanted": wanted,
            "recall": hits / wanted, "precision": hits / (hits + extra), "false_alarms": extra,
        }  # fmt: skip
    return rows


def run(size_bytes: int = SIZE_BYTES) -> dict[str, Any]:
    """Return speed and quality."""
    scores = {"faults": measure_logs(), "fault_pairs": measure_logs(pairs=True)}
    return {
        "rules": sum(not rule.signal for rule in shipped_rules().values()),
        "speed_realistic": speed(realistic_lines(30_000), size_bytes),
        "speed_mixed": speed(mixed_lines(2000), size_bytes),
        "speed_every_line_matters": speed(channel_lines(4000), size_bytes),
        "speed_flood": speed(warning_lines(4000), size_bytes),
        "peak_memory_MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "kept_logs": quality(),
        **{
            name: {
                "cases": score.num_cases, "recall": score.recall, "precision": score.precision,
                "first_cause_right": score.first_right / score.num_cases, "missed": list(score.misses),
                "false_alarms": list(score.extras),
            }
            for name, score in scores.items()
        },
    }  # fmt: skip
