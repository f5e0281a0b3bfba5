"""200 steps with five random kills beside 200 undisturbed ones: losses, steps lost, and how soon the others went on.

    python benchmarks/run.py survive --keep                        also draws results/survive.svg

Four ranks share a batch of 24, whoever is there. A rank is killed with -9 at a random moment, five times, and started
again at once; the others never stop. torchft, whose semantics are the yardstick, is struck alike in the same run where
it is installed: as its guide says, and with a lighthouse that takes a rank for lost after a second.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from rig import survive_rank

ROOT = Path(__file__).resolve().parents[1]
NUM_RANKS, STEPS = 4, 200
LIGHTHOUSE = {"min_replicas": 1, "quorum_tick_ms": 100, "join_timeout_ms": 10_000}
LIGHTHOUSES = {"as its guide starts it": {}, "heartbeats of 1 s": {"heartbeat_timeout_ms": 1000}}
"""How torchft's lighthouse is started."""
PAUSE_S = float(os.environ.get("PAUSE_S", "0.3"))
"""Between steps of the run that is struck: a rank must be back before the next kill."""
LONGEST_S = 900.0
KILLS = int(os.environ.get("KILLS", "5"))


class Crew:
    """Four ranks, each a process that can be killed and started again."""

    def __init__(self, folder: Path, port: int, pause_s: float, work: Callable[..., None]) -> None:
        self.folder, self.port, self.pause_s, self.work = folder, port, pause_s, work
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["rig.survive_rank", "rig.torchft_rank", "torch._dynamo"])
        self.ranks = [self._start(rank) for rank in range(NUM_RANKS)]
        self.struck_s = 0.0

    def _start(self, rank: int) -> Any:
        given = (rank, NUM_RANKS, STEPS, self.folder, self.port, self.pause_s)
        process = self._context.Process(target=self.work, args=given)
        process.start()
        return process

    def strike(self, rank: int) -> float:
        """Kill a rank and start it again; return when it was killed."""
        self.struck_s = time.monotonic()
        self.ranks[rank].kill()
        self.ranks[rank].join()
        self.ranks[rank] = self._start(rank)
        return self.struck_s

    def rows(self, rank: int) -> list[dict[str, Any]]:
        """Return what a rank has written."""
        path = self.folder / f"{rank}.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def step(self) -> int:
        """Return the newest step of any rank."""
        return max((row["step"] for rank in range(NUM_RANKS) for row in self.rows(rank) if "step" in row), default=-1)

    def all_there(self) -> bool:
        """Tell whether every rank has made a step with all others since the last kill, or has come to its end."""
        newest = [rows[-1] for rank in range(NUM_RANKS) if (rows := self.rows(rank))]
        full = [row for row in newest if row.get("members") == NUM_RANKS and row["at_s"] > self.struck_s]
        return len(full) == NUM_RANKS or any("end" in row for row in newest)


def train(num_kills: int) -> dict[str, Any]:
    """Return what each rank wrote, and the kills, under syncline."""
    store: Any = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    return strike(num_kills, store.port, survive_rank.train)


def beside_torchft() -> dict[str, Any] | str:
    """Return what torchft makes of as many kills at the same steps, for each way to start its lighthouse."""
    if not find_spec("torchft"):
        return "not installed"
    from torchft.coordination import LighthouseServer

    from rig import torchft_rank

    found = {}
    for name, options in LIGHTHOUSES.items():
        lighthouse = LighthouseServer(bind="[::]:0", **LIGHTHOUSE, **options)
        run = strike(KILLS, int(lighthouse.address().rpartition(":")[2]), torchft_rank.train)
        lighthouse.shutdown()
        discarded = sum(row["discarded"] for rows in run["rows"] for row in rows if "end" in row)
        found[name] = summary(figures(run)) | {"tries_discarded_by_all_ranks": discarded}
    return found


def strike(num_kills: int, port: int, work: Callable[..., None], seed: int = 7) -> dict[str, Any]:
    """Train with so many kills; return what each rank wrote and what was killed when."""
    draws = random.Random(seed)  # noqa: S311
    folder = Path(tempfile.mkdtemp(prefix="survive-"))
    crew = Crew(folder, port, PAUSE_S if num_kills else 0.0, work)
    kills = []
    # Kills are spread over the run, each when the rank before is back, at a moment drawn anew.
    for number in range(num_kills):
        due = (number + 1) * STEPS // (num_kills + 2)
        end_s = time.monotonic() + LONGEST_S
        while crew.step() < due or not crew.all_there():
            if time.monotonic() > end_s:
                raise TimeoutError(f"not all ranks were back {LONGEST_S:.0f} s after kill {number}")
            time.sleep(0.05)
        time.sleep(draws.uniform(0.0, PAUSE_S))
        rank, step = draws.randrange(NUM_RANKS), crew.step()
        kills.append({"rank": rank, "at_step": step, "at_s": crew.strike(rank)})
    for process in crew.ranks:
        process.join(LONGEST_S)
    rows, codes = [crew.rows(rank) for rank in range(NUM_RANKS)], [process.exitcode for process in crew.ranks]
    logs = "" if not any(codes) else "\n".join((folder / f"{r}.log").read_text()[-800:] for r in range(NUM_RANKS))
    shutil.rmtree(folder)
    return {"rows": rows, "kills": kills, "codes": codes, "logs": logs}


def figures(run: dict[str, Any]) -> dict[str, Any]:
    """Return losses, which ranks were there, and for each kill when the others made their next steps."""
    steps: dict[int, list[dict[str, Any]]] = {}
    for rank, rows in enumerate(run["rows"]):
        for row in rows:
            if "step" in row:
                steps.setdefault(row["step"], []).append({**row, "rank": rank})
    losses = [statistics.fmean(row["loss"] for row in steps[step]) for step in sorted(steps)]
    ends = [row for rows in run["rows"] for row in rows if "end" in row]
    kills = []
    for kill in run["kills"]:
        others = sorted(
            row["at_s"] for rank, rows in enumerate(run["rows"]) if rank != kill["rank"] for row in rows
            if "step" in row and row["at_s"] > kill["at_s"] and row["members"] < NUM_RANKS
        )  # fmt: skip
        back = [row for row in run["rows"][kill["rank"]] if "step" in row and row["at_s"] > kill["at_s"]]
        kills.append({
            "rank": kill["rank"], "at_step": kill["at_step"],
            "others_went_on_after_s": round(others[0] - kill["at_s"], 2) if others else None,
            "back_at_step": back[0]["step"] if back else None,
            "back_after_s": round(back[0]["at_s"] - kill["at_s"], 2) if back else None,
        })  # fmt: skip
    per_rank = [[row["step"] for row in rows if "step" in row] for rows in run["rows"]]
    return {
        "steps_made": len(losses), "every_step_made": sorted(steps) == list(range(STEPS)),
        "steps_made_twice_by_one_rank": sum(len(made) - len(set(made)) for made in per_rank),
        "weights_equal_at_the_end": len({row["end"] for row in ends}) == 1 and len(ends) == NUM_RANKS,
        "codes": run["codes"], "kills": kills, "losses": [round(loss, 6) for loss in losses],
        "members": [min(row["members"] for row in steps[step]) for step in sorted(steps)], "logs": run["logs"],
    }  # fmt: skip


def summary(struck: dict[str, Any]) -> dict[str, Any]:
    """Return what the kills cost: steps, and the time until the others made their next one."""
    continued = [kill["others_went_on_after_s"] for kill in struck["kills"] if kill["others_went_on_after_s"]]
    return {
        "steps_lost": STEPS - struck["steps_made"], "weights_equal_at_the_end": struck["weights_equal_at_the_end"],
        "codes": struck["codes"], "kills": struck["kills"], "logs": struck["logs"],
        "went_on_after_s": {"median": round(statistics.median(continued), 2), "longest": max(continued)}
        if continued else None,
    }  # fmt: skip


def run() -> dict[str, Any]:
    """Return both runs and draw them."""
    calm, struck = figures(train(0)), figures(train(KILLS))
    pairs = list(zip(calm["losses"], struck["losses"], strict=False))
    tail = [b / a - 1 for a, b in pairs[-50:]]
    picture = ROOT / "benchmarks" / "results" / "survive.svg"
    picture.write_text(draw(calm["losses"], struck["losses"], struck["members"]))
    return {
        "ranks": NUM_RANKS, "steps": STEPS, "calm": calm, "struck": struck, "picture": picture.name,
        **{key: summary(struck)[key] for key in ("steps_lost", "went_on_after_s")},
        "loss_apart_last_50_steps": {"mean": round(statistics.fmean(tail), 4), "most": round(max(map(abs, tail)), 4)},
        "torchft": beside_torchft(),
    }  # fmt: skip


def draw(calm: list[float], struck: list[float], members: list[int]) -> str:
    """Return both curves as a picture; below, how many ranks were there."""
    width, height, left, top = 720, 300, 50, 20
    calm, struck = ([math.log10(loss) for loss in losses] for losses in (calm, struck))
    highest, lowest = max(calm + struck), min(calm + struck)

    def line(values: list[float], colour: str) -> str:
        points = " ".join(
            f"{left + k * (width - left - 10) / STEPS:.1f},"
            f"{top + (height - 80) * (1 - (value - lowest) / (highest - lowest)):.1f}"
            for k, value in enumerate(values)
        )
        return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'

    bars = "".join(
        f'<rect x="{left + k * (width - left - 10) / STEPS:.1f}" y="{height - 15 - 8 * count}" '
        f'width="{(width - left - 10) / STEPS:.1f}" height="{8 * count}" fill="#b9c4d0"/>'
        for k, count in enumerate(members)
    )
    words = [
        (left, 14, "loss, logarithmic"),
        (left, height - 50, "ranks"),
        (width - 200, 34, "grey-blue: undisturbed"),
        (width - 200, 50, "orange: five kills"),
    ]
    texts = "".join(
        f'<text x="{x}" y="{y}" font-size="12" font-family="sans-serif">{text}</text>' for x, y, text in words
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">'
        f'<rect width="{width}" height="{height}" fill="white"/>{bars}'
        f"{line(calm, '#51718f')}{line(struck, '#d9822b')}{texts}</svg>\n"
    )
