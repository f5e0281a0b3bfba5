"""Who is lost, and how soon everybody knows: ranks killed and stopped at random moments, and 10,000 ranks' heartbeats.

    KILLS=400 python benchmarks/run.py detection --keep
    KILLS=0 STOPS_S= CUTS_S= python benchmarks/run.py detection        the heartbeats of 10,000 ranks alone
    FIRST=200 KILLS=200 ...                                            the moments of the 201st kill and later

Half of the kills hit the default (`auto`), half of those while it tries codecs; the others hit plain, int8, FSDP2 and
FSDP2 beside tensor parallelism.
A survivor counts as right where it raises a `LostRankError` that names the killed rank and its host, with the step and
the phase; as soon, within three seconds. Ranks that stand still (SIGSTOP) for less than patience lasts must not be
called lost, nor a rank of a lab whose host's cable is cut for a while. The heartbeats of many ranks are simulated
(`rig/beat_swarm.py`), with 1 % of messages lost and 50 processes that pause for 5 s. The bound is what all pairs would
send.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from rig import beat_swarm, kill_rank
from syncline.errors import LabError
from syncline.fabric import load
from syncline.host.ports import meeting_port
from syncline.lab import Lab
from syncline.runtime.alive.watchdog import BEATS

KILLS = int(os.environ.get("KILLS", "40"))
FIRST = int(os.environ.get("FIRST", "0"))
AT_ONCE = max(1, (os.cpu_count() or 1) // 3)
"""Scripts that run side by side: their ranks mostly sleep or wait."""
STOPS_S, CUTS_S = (
    tuple(float(text) for text in os.environ.get(name, given).split(",") if text)
    for name, given in (("STOPS_S", "3,15,60"), ("CUTS_S", "5,20"))
)
SHARES = {"auto": 0.25, "auto trial": 0.25, "plain": 0.125, "int8": 0.125, "fsdp2": 0.125, "fsdp2 tp": 0.125}
"""Of all kills: which kind of script they hit."""
FOLDER = Path(__file__).parent
FLAT = FOLDER.parent / "examples" / "lab-flat.yaml"
SOON_S = 3.0
LONGEST_S = 90.0
SWARMS = (100, 1_000, 10_000)
WATCH_S = 10.0


class Script:
    """One training script on a few ranks, each a process."""

    def __init__(self, kind: str, **options: Any) -> None:
        self.kind, self.num_ranks = kind, 4 if kind == "fsdp2 tp" else 3
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["rig.kill_rank", "torch._dynamo", "torch.distributed.fsdp"])
        port = meeting_port()
        self.pipes, self.ranks = [], []
        for rank in range(self.num_ranks):
            here, there = context.Pipe(duplex=False)
            process = context.Process(target=kill_rank.train, args=(rank, self.num_ranks, port, kind, there, options))
            process.start()
            self.pipes.append(here)
            self.ranks.append(process)
        for pipe in self.pipes:
            if not pipe.poll(LONGEST_S) or pipe.recv() != "ready":
                raise TimeoutError(f"a rank of {kind} did not start")

    def answers(self, ranks: list[int], timeout_s: float) -> dict[int, dict[str, Any] | None]:
        """Return what these ranks raised, None where one says nothing."""
        end_s = time.monotonic() + timeout_s
        found: dict[int, dict[str, Any] | None] = {}
        for rank in ranks:
            try:
                heard = self.pipes[rank].poll(max(0.0, end_s - time.monotonic()))
                found[rank] = self.pipes[rank].recv() if heard else None
            except EOFError:
                found[rank] = {"class": "the process ended", "rank": None, "at_s": time.monotonic()}
        return found

    def end(self) -> None:
        """End what is left of it."""
        for process in self.ranks:
            process.kill()
            process.join(10)


def kill(kind: str, draws: random.Random) -> dict[str, Any]:
    """Kill a rank at a random moment; return what each survivor raised, and when."""
    script = Script(kind)
    try:
        time.sleep(draws.uniform(0.0, 0.25 if kind == "auto trial" else 3.0))
        lost = draws.randrange(script.num_ranks)
        killed_s = time.monotonic()
        script.ranks[lost].kill()
        heard = script.answers([rank for rank in range(script.num_ranks) if rank != lost], 30.0)
    finally:
        script.end()
    rows: list[dict[str, Any]] = [
        {"after_s": None, "class": "hangs", "names": None, "phase": ""} if row is None
        else {"after_s": round(row["at_s"] - killed_s, 2), "class": row["class"], "names": row["rank"],
              "host": row.get("host", ""), "step": row.get("step", -1), "phase": row.get("phase", ""),
              "text": row.get("text", "")[:200]}
        for row in heard.values()
    ]  # fmt: skip
    right = all(
        row["class"] == "LostRankError" and row["names"] == lost and row["host"] and row["step"] >= 0 and row["phase"]
        for row in rows
    )
    soon = all(isinstance(row["after_s"], float) and row["after_s"] <= SOON_S for row in rows)
    return {"kind": kind, "lost": lost, "right": right, "soon": soon, "survivors": rows}


def stop(kind: str, stopped_s: float) -> dict[str, Any]:
    """Stop a rank for a while; return whether training went on afterwards, or what was raised."""
    script = Script(kind, steps=400)
    try:
        time.sleep(0.5)
        stopped = int(script.ranks[1].pid or 0)
        os.kill(stopped, signal.SIGSTOP)
        time.sleep(stopped_s)
        os.kill(stopped, signal.SIGCONT)
        heard = script.answers(list(range(script.num_ranks)), LONGEST_S)
    finally:
        script.end()
    ends = [("hangs" if row is None else row["class"]) for row in heard.values()]
    return {"kind": kind, "stopped_s": stopped_s, "ends": ends, "went_on": ends == ["finished"] * script.num_ranks}


def cut(kind: str, cut_s: float) -> dict[str, Any]:
    """Cut a host's cable in a lab for a while; return whether training went on, and its longest step."""
    found: list[dict[str, Any]] = []
    ready = threading.Semaphore(0)

    def hear(_process: object, _stream: str, line: str) -> None:
        if line == '"ready"':
            ready.release()
        elif line.startswith("{"):
            found.append(json.loads(line))

    with Lab(load(FLAT), hosts=3) as lab:
        command = [sys.executable, "-m", "rig.kill_rank", kind, "400"]
        job = lab.start(command, on_line=hear, env={"PYTHONPATH": os.pathsep.join([str(FOLDER), *sys.path])})
        if not all(ready.acquire(timeout=LONGEST_S) for _ in lab.host_names):
            job.end()
            raise TimeoutError(f"a rank of {kind} did not start")
        lab.fault(f"{lab.host_names[1]}:eth0 down for {cut_s:g}s")
        job.wait(LONGEST_S)
    ends = [row["class"] for row in found]
    return {"kind": kind, "cut_s": cut_s, "ends": ends, "went_on": ends == ["finished"] * 3,
            "longest_step_s": max(row.get("longest_s", 0.0) for row in found)}  # fmt: skip


def labelled(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what comes of one script, which is written as it ends: a run that is ended early has its rows."""
    row = work()
    print(json.dumps(row), file=sys.stderr, flush=True)
    return row


def run() -> dict[str, Any]:
    """Return every kill, stop and cut, and how many ended as they should."""
    kinds = [kind for kind, share in SHARES.items() for _ in range(round(share * KILLS))]
    random.Random(11).shuffle(kinds)  # noqa: S311
    missing = []
    with ThreadPoolExecutor(AT_ONCE) as several:
        pauses = [(work, s) for work, all_s in ((cut, CUTS_S), (stop, STOPS_S)) for s in sorted(all_s, reverse=True)]
        paused = [(work, several.submit(labelled, partial(work, kind, s)))
                  for work, s in pauses for kind in ("auto", "int8")]  # fmt: skip
        struck = [several.submit(labelled, partial(kill, kind, random.Random(FIRST + n)))  # noqa: S311
                  for n, kind in enumerate(kinds)]  # fmt: skip
        stops = [one.result() for work, one in paused if work is stop]
        try:
            cuts = [one.result() for work, one in paused if work is cut]
        except LabError as error:
            cuts, missing = [], [f"cuts: {error}"]
        kills = [one.result() for one in struck]
    swarms = {str(n): asdict(beat_swarm.watch(n)) for n in SWARMS}
    swarms["10000, its host gone"] = asdict(beat_swarm.watch(10_000, host_is_gone=True))
    times = [row["after_s"] for one in kills for row in one["survivors"] if row["after_s"] is not None]
    wrong = [one for one in kills if not (one["right"] and one["soon"])]
    return {
        "kills": len(kills), "right": sum(one["right"] for one in kills), "soon": sum(one["soon"] for one in kills),
        "by_kind": {k: [sum(one["right"] for one in kills if one["kind"] == k), kinds.count(k)] for k in SHARES},
        "classes": Counter(row["class"] for one in kills for row in one["survivors"]),
        "phases": Counter(row["phase"] for one in kills for row in one["survivors"]),
        "after_s": {"median": statistics.median(times), "longest": max(times)} if times else None,
        "wrong": wrong, "stops": stops, "cuts": cuts, "swarms": swarms, "missing": missing,
        "all_pairs_messages_a_second": {str(n): BEATS / WATCH_S * (n - 1) for n in SWARMS},
    }  # fmt: skip
