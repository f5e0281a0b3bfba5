"""1,000 faults in messages, and one of four ranks killed at 20 random moments under torchrun: what was silent.

    python benchmarks/run.py faults --json
    FAULTS=1000 KILLS=0 python benchmarks/run.py faults --keep
    FAULTS=0 KILLS=20 python benchmarks/run.py faults --keep      one part anew, the others as they were last kept

Faults: worlds of three ranks as threads over gloo on loopback, four steps each, codecs int8, fp32 and sign in turn.
Kills: examples/training/elastic.py (int4 with error feedback, a checkpoint every 5 steps) in one torchrun of four
ranks that is struck again and again; its losses must be those of an undisturbed run, digit by digit.
Resize: the same example goes on from a checkpoint of four ranks with three.
"""

from __future__ import annotations

import datetime
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.runtime.alive.injection import KINDS, NUM_RANKS, MessageFault, expected, run_world

ROOT = Path(__file__).resolve().parents[1]
CODECS = ("int8", "fp32", "sign")
NUM_KILLABLE = 4
MESSAGES = 8
"""Messages of a step that are struck: a rank sends more, but not all in every order."""
AT_ONCE = 12
MOST_WORLDS = 2
"""Times the faults asked for: a world that found nothing to strike, or did not start in time, does not count."""


def draw(number: int) -> tuple[MessageFault, str]:
    """Return the fault of this number and the codec of its world."""
    draws = random.Random(number)  # noqa: S311  (drawn again from its number)
    kind = KINDS[number % len(KINDS)]
    fault = MessageFault(kind, draws.choice((1, 2)), draws.randrange(NUM_RANKS), draws.randrange(MESSAGES), number)
    return fault, CODECS[number // len(KINDS) % len(CODECS)]


def strike(number: int) -> tuple[str, str]:
    """Return the kind of a fault and what became of it."""
    fault, codec = draw(number)
    outcome = run_world(fault, codec)
    if not outcome.struck:
        return fault.kind, "not struck"
    if outcome.is_silent(expected(codec)):
        return fault.kind, f"SILENT {fault} {codec} {outcome.errors}"
    return fault.kind, "raised on every rank" if outcome.is_raised else "no effect on the result"


def campaign(num_faults: int) -> dict[str, Any]:
    """Return what became of so many faults, by kind."""
    for codec in CODECS:
        expected(codec)
    began = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found: list[tuple[str, str]] = []
        while (missing := num_faults - sum(what != "not struck" for _, what in found)) > 0:
            if len(found) >= MOST_WORLDS * num_faults:
                break
            found += pool.map(strike, range(len(found), len(found) + missing))
    table: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    for kind, what in found:
        table[kind][what.partition(" Fault")[0]] += 1
    return {
        "num_worlds": len(found),
        "num_struck": sum(what != "not struck" for _, what in found),
        "num_silent": sum(what.startswith("SILENT") for _, what in found),
        "silent": [what for _, what in found if what.startswith("SILENT")],
        "by_kind": {kind: dict(counts) for kind, counts in table.items()},
        "took_s": round(time.monotonic() - began, 1),
    }


def torchrun(
    folder: Path, steps: int, restarts: int, pause_s: float, num_ranks: int = NUM_KILLABLE
) -> subprocess.Popen[str]:
    """Start the example."""
    settings = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "STEPS": str(steps), "PAUSE_S": str(pause_s)}
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(num_ranks)]
    command = [*launcher, "--max-restarts", str(restarts), "--monitor-interval", "0.2",
               str(ROOT / "examples" / "training" / "elastic.py"), str(folder)]  # fmt: skip
    return subprocess.Popen(
        command, env={**os.environ, **settings}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def losses(lines: list[str]) -> tuple[dict[int, str], int]:
    """Return the loss printed for each step, and how many steps were printed twice with different losses."""
    seen: dict[int, set[str]] = {}
    for match in re.finditer(r"step (\d+) loss (\S+)", "\n".join(lines)):
        seen.setdefault(int(match[1]), set()).add(match[2])
    return {step: min(texts) for step, texts in seen.items()}, sum(len(texts) > 1 for texts in seen.values())


def ranks_of(agent: int) -> list[int]:
    """Return the processes that torchrun has started."""
    path = Path(f"/proc/{agent}/task/{agent}/children")
    return [int(word) for word in path.read_text().split()] if path.exists() else []


def kills(num_kills: int, steps: int = 60, seed: int = 0) -> dict[str, Any]:
    """Kill a rank again and again, at random moments after training was seen to go on, and compare the losses."""
    draws = random.Random(seed)  # noqa: S311
    with tempfile.TemporaryDirectory() as folder:
        calm = torchrun(Path(folder) / "calm", steps, 0, 0.0)
        due, _ = losses((calm.communicate(timeout=300)[0] or "").splitlines())
        struck = torchrun(Path(folder) / "struck", steps, num_kills, 0.15)
        lines: list[str] = []
        reader = threading.Thread(target=lambda: lines.extend(struck.stdout or []))
        reader.start()
        moments: list[int] = []
        while len(moments) < num_kills and struck.poll() is None:
            before = len(lines)
            while len(lines) <= before and struck.poll() is None:
                time.sleep(0.02)
            time.sleep(draws.uniform(0.0, 1.5))
            ranks = ranks_of(struck.pid)
            if struck.poll() is None and len(ranks) == NUM_KILLABLE:
                os.kill(draws.choice(ranks), signal.SIGKILL)
                moments.append(len(lines))
                time.sleep(1.0)
        code = struck.wait(timeout=600)
        reader.join()
    got, differing = losses(lines)
    return {
        "num_kills": len(moments), "exit_code": code, "num_steps": steps, "num_steps_with_two_losses": differing,
        "losses_equal": got == due and len(due) == steps, "printed_steps": len(lines),
        "num_unlike": sum(got.get(step) != loss for step, loss in due.items()),
    }  # fmt: skip


def resize(num_ranks: int, steps: int = 30) -> dict[str, Any]:
    """Stop four ranks at a checkpoint, and go on from it with four and with another number: how far losses differ."""
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder, "first"), Path(folder, "second")
        torchrun(first, steps, 0, 0.0).communicate(timeout=300)
        shutil.copytree(first, second)
        same = torchrun(first, 2 * steps, 0, 0.0).communicate(timeout=300)[0]
        other = torchrun(second, 2 * steps, 0, 0.0, num_ranks).communicate(timeout=300)[0]
    (due, _), (got, _) = losses(same.splitlines()), losses(other.splitlines())
    apart = [abs(float(got[step]) / float(due[step]) - 1) for step in sorted(got)]
    return {
        "from_ranks": NUM_KILLABLE, "to_ranks": num_ranks, "resumed_at_step": min(got), "num_steps": len(got),
        "every_step_there": sorted(got) == sorted(due) == list(range(steps, 2 * steps)),
        "loss_apart_first": apart[0], "loss_apart_most": max(apart), "last_losses": [due[max(due)], got[max(got)]],
    }  # fmt: skip


def kept() -> dict[str, Any]:
    """Return the campaigns of the newest kept result, each with the time at which it was run."""
    files = sorted((ROOT / "benchmarks" / "results").glob("*-faults.json"))
    report = json.loads(files[-1].read_text("utf-8")) if files else {}
    return {
        name: {"run_at": report.get("date", ""), **report[name]}
        for name in ("faults", "kills", "resize")
        if name in report
    }


def run() -> dict[str, Any]:
    """Return the campaigns; one that was not asked for is the one kept last."""
    found = kept()
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    for name, what, number in (("faults", campaign, "1000"), ("kills", kills, "20"), ("resize", resize, "3")):
        count = int(os.environ.get(name.upper(), number))
        if count:
            found[name] = {"run_at": now, **what(count)}
    return found
