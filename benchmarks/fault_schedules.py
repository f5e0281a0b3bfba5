"""500 random fault schedules in labs: what a rank that is killed, stopped, cut off, late, wrong or full does to others.

    python benchmarks/run.py fault_schedules --keep
    SCHEDULES=40 ROWS=/tmp/rows.jsonl LABS=2 python benchmarks/run.py fault_schedules    goes on where ROWS ends
    ONLY=17,203 python benchmarks/run.py fault_schedules                                 these again, without ROWS

Two to four hosts, a rank on each, train a small model (DDP, FSDP2 on a 1-D mesh, and on 2 x 2) for 14 steps; one to
three faults strike. Times are a tenth of real ones: links are down and ranks are stopped or late for 0.1 to 6 s, and
patience (`wait_s`) is 5 s. Good are two ends only: every rank goes on with the losses and weights of a calm run, to the
bit, or every rank that is left ends with an error that names a rank which was struck.
"""

from __future__ import annotations

import json
import os
import queue
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from syncline.errors import LabError
from syncline.fabric import load
from syncline.lab import Lab

ROOT = Path(__file__).resolve().parents[1]
RIG = ROOT / "benchmarks" / "rig"
CLUSTER = ROOT / "examples" / "lab-flat.yaml"
KINDS = ("kill", "stop", "down", "loss", "late", "exception", "nan", "disk")
FIRST_DOWN = ("kill", "exception", "nan")
"""After these nobody goes on."""
MODES = {"ddp": (2, 3, 4), "fsdp": (2, 3, 4), "fsdp2d": (4,)}
CODECS = ("int8", "int4", "fp32", "bf16", "powersgd:rank=2")
STEPS, PAUSE_S, WAIT_S = 14, 0.01, 5.0
TIMEOUT_S, LONGEST_S = 40.0, 240.0
DISK_BYTES = 1_200_000
GENTLE_S = 1.5
"""Shorter than this, or this loss, nothing may end: TCP sends again after up to twice as long."""
GENTLE_LOSS = 0.05


def draw(number: int) -> dict[str, Any]:
    """Return the schedule of this number."""
    draws = random.Random(number)  # noqa: S311  (drawn again from its number)
    mode = draws.choice(("ddp", "ddp", "fsdp", "fsdp2d"))
    num_ranks = draws.choice(MODES[mode])
    first = KINDS[number % len(KINDS)]
    more = draws.choices(KINDS, k=draws.choice((0, 0, 0, 1, 1, 2)))
    strikes = [_strike(kind, num_ranks, draws) for kind in (first, *more)]
    return {
        "number": number, "mode": mode, "num_ranks": num_ranks, "codec": draws.choice(CODECS),
        "nan": draws.choice(("raise", "skip")), "strikes": strikes,
    }  # fmt: skip


def _strike(kind: str, num_ranks: int, draws: random.Random) -> dict[str, Any]:
    value = draws.uniform(0.02, 0.3) if kind == "loss" else 0.1 * 60 ** draws.random()
    return {
        "kind": kind, "rank": draws.randrange(num_ranks), "step": draws.randrange(STEPS - 2),
        "after_s": draws.uniform(0.0, 0.05), "value": round(value, 3), "lasts_s": round(draws.uniform(0.5, 5.0), 2),
    }  # fmt: skip


class Seats:
    """The hosts of one lab, each with a process that forks ranks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.disk = folder / "disk"
        self.disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(self.disk)]
        self.has_disk = subprocess.run(mount, check=False, capture_output=True).returncode == 0
        self.rows: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.lab = Lab(load(CLUSTER), hosts=4)
        self.port = 20_000

    def __enter__(self) -> Seats:
        self.lab.open()
        paths_of_python = (str(RIG.parent), str(ROOT / "src"), os.environ.get("PYTHONPATH", ""))
        env = {"PYTHONPATH": os.pathsep.join(filter(None, paths_of_python)), "TORCH_CPP_LOG_LEVEL": "ERROR"}
        command = [sys.executable, str(RIG / "schedule_host.py")]
        paths = [str(self.folder / f"host-{k}") for k in range(4)]
        names = self.lab.host_names
        for name, path in zip(names, paths, strict=True):
            self.lab.spawn(name, [*command, path], env={**env, "OMP_NUM_THREADS": "1"}, on_line=self._take, keep=False)
        self.lines = [_connect(path).makefile("rw") for path in paths]
        self.common = {"MASTER_ADDR": self.lab.address(names[0]), "GLOO_SOCKET_IFNAME": "eth0"}
        return self

    def __exit__(self, *_: object) -> None:
        self.lab.close()
        if self.has_disk:
            subprocess.run(["umount", "-l", str(self.disk)], check=False)

    def _take(self, process: Any, stream: str, line: str) -> None:
        if stream == "stdout" and line.startswith("{"):
            self.rows.put(json.loads(line))

    def play(self, schedule: dict[str, Any], calm: bool = False) -> dict[str, Any]:
        """Run a schedule, or what it disturbs, and return what each rank said and how it ended."""
        num_ranks, self.port = schedule["num_ranks"], self.port + 1
        strikes = [] if calm else schedule["strikes"]
        saves = any(strike["kind"] == "disk" for strike in strikes)
        if saves:
            _clear(self.disk)
        options = {"watch_s": 1.0, "wait_s": WAIT_S, "timeout_s": TIMEOUT_S, "nan": schedule["nan"], "warmup": 0}
        began = time.monotonic()
        pids = []
        for rank in range(num_ranks):
            env = {**self.common, "MASTER_PORT": self.port, "SYNCLINE_LAB_HOST": self.lab.host_names[rank]}
            told = {
                **schedule, "strikes": strikes, "rank": rank, "env": env, "options": options, "steps": STEPS,
                "pause_s": PAUSE_S, "disk": str(self.disk) if saves else "",
                "stderr": str(self.folder / f"stderr-{rank}"),
            }  # fmt: skip
            print(json.dumps(told), file=self.lines[rank], flush=True)
            pids.append(int(json.loads(self.lines[rank].readline())["pid"]))
        watch = _Watch(self, pids, began)
        codes = watch.codes()
        said: dict[int, dict[str, Any]] = {}
        while not self.rows.empty():
            self._note(said, self.rows.get())
        said |= watch.said
        errors = [(self.folder / f"stderr-{rank}").read_text("utf-8", "replace")[-3000:] for rank in range(num_ranks)]
        return {
            "codes": codes, "said": said, "hung": watch.hung, "took_s": round(time.monotonic() - began, 2),
            "stderr": errors,
        }  # fmt: skip

    def _note(self, said: dict[int, dict[str, Any]], row: dict[str, Any]) -> dict[str, Any] | None:
        """Keep what a rank said at its end; return a strike that is to be done from outside."""
        if "strike" in row:
            return dict(row["strike"])
        said[int(row["rank"])] = row
        return None


class _Watch:
    """Waits for the ranks of one schedule, and strikes their links when they ask for it."""

    def __init__(self, seats: Seats, pids: list[int], began_s: float) -> None:
        self.seats, self.pids, self.began_s = seats, pids, began_s
        self.said: dict[int, dict[str, Any]] = {}
        self.hung: list[int] = []
        self._faults: list[tuple[float, int]] = []

    def codes(self) -> list[int | None]:
        """Return how each rank ended; ranks that do not are killed, and are hung."""
        found: list[int | None] = [None] * len(self.pids)
        waits = [threading.Thread(target=self._wait, args=(rank, found), daemon=True) for rank in range(len(self.pids))]
        for wait in waits:
            wait.start()
        while any(wait.is_alive() for wait in waits):
            self._look()
            if time.monotonic() > self.began_s + LONGEST_S and not self.hung:
                self.hung = [rank for rank, wait in enumerate(waits) if wait.is_alive()]
                for rank in self.hung:
                    subprocess.run(["kill", "-KILL", str(self.pids[rank])], check=False)
        self._look()
        for until_s, number in self._faults:
            if until_s > time.monotonic():
                try:
                    self.seats.lab.mend(number)
                except LabError:
                    continue
        return found

    def _wait(self, rank: int, found: list[int | None]) -> None:
        found[rank] = int(json.loads(self.seats.lines[rank].readline())["code"])

    def _look(self) -> None:
        try:
            row = self.seats.rows.get(timeout=0.05)
        except queue.Empty:
            return
        strike = self.seats._note(self.said, row)
        if strike is None:
            return
        host = self.seats.lab.host_names[strike["rank"]]
        lasts_s = strike["value"] if strike["kind"] == "down" else strike["lasts_s"]
        what = "down" if strike["kind"] == "down" else f"loss {100 * strike['value']:.3g}%"
        number = self.seats.lab.fault(f"{host}:eth0 {what} for {lasts_s:g}s")
        self._faults.append((time.monotonic() + lasts_s + 0.2, number))


def judge(schedule: dict[str, Any], result: dict[str, Any], calm: dict[str, Any]) -> tuple[str, str]:
    """Return the outcome in a word or two, and what each rank said where that is no good one."""
    struck = {strike["rank"] for strike in schedule["strikes"]}
    links = {s["rank"] for s in schedule["strikes"] if s["kind"] in ("down", "loss")}
    said, num_ranks = result["said"], schedule["num_ranks"]
    killed = {r for r in range(num_ranks) if result["codes"][r] == -9 and r not in result["hung"]}
    story = "; ".join(f"{r}: {_words(said.get(r), result['codes'][r])}" for r in range(num_ranks))
    if result["hung"]:
        return "HANGS", story
    skips = any(s["kind"] == "nan" for s in schedule["strikes"]) and schedule["nan"] == "skip"
    ended = [r for r in range(num_ranks) if r not in killed and "losses" not in said.get(r, {})]
    went = [r for r in range(num_ranks) if "losses" in said.get(r, {})]
    if not ended and not killed:
        if skips:
            same = len({said[r]["weights"] for r in went}) == 1 or schedule["mode"] != "ddp"
            return ("went on, step skipped" if same else "SILENTLY DIFFERS"), story
        same = all(_same(said[r], calm["said"][r]) for r in went)
        return ("went on, nothing lost" if same else "SILENTLY DIFFERS"), story
    if any(not skips and not _same(said[r], calm["said"][r]) for r in went):
        return "SILENTLY DIFFERS", story
    # Of two ranks that cannot hear each other neither can say whose link it is.
    right = struck | (set(range(num_ranks)) if links and num_ranks == 2 else set())
    for rank in ended:
        if rank not in struck and not any(_names(said.get(rank), result["stderr"][rank], r) for r in right):
            return "NAMES NO STRUCK RANK", story
    if all(_is_gentle(strike, schedule) for strike in schedule["strikes"]):
        return "ENDED WITHOUT NEED", story
    return "ended, struck rank named", story


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return (one["losses"], one["weights"]) == (other["losses"], other["weights"])


def _is_gentle(strike: dict[str, Any], schedule: dict[str, Any]) -> bool:
    kind = strike["kind"]
    if kind == "nan":
        return bool(schedule["nan"] == "skip")
    if kind == "loss":
        return bool(strike["value"] < GENTLE_LOSS)
    return kind == "disk" or (kind in ("down", "late", "stop") and strike["value"] < GENTLE_S)


def _names(row: dict[str, Any] | None, stderr: str, rank: int) -> bool:
    text = row["text"] if row is not None and "text" in row else stderr
    return f"rank {rank} " in f"{text} ".replace(".", " ").replace(",", " ").replace(":", " ")


def _words(row: dict[str, Any] | None, code: int | None) -> str:
    if row is None:
        return f"exit {code}"
    return "finished" if "losses" in row else f"{row['error']} {row['text'][:240]}"


def campaign(numbers: list[int], path: Path | None, num_labs: int) -> list[dict[str, Any]]:
    """Return a row for each schedule; those that `path` has are not run again."""
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path and path.exists() else []
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in sorted(set(numbers) - {row["number"] for row in rows}):
        todo.put(number)
    lock = threading.Lock()
    calms: dict[str, dict[str, Any]] = {}

    def work() -> None:
        with _folder() as folder, Seats(folder) as seats:
            while True:
                try:
                    schedule = draw(todo.get_nowait())
                except queue.Empty:
                    return
                row = _one(seats, schedule, calms)
                with lock:
                    rows.append(row)
                    if path:
                        with path.open("a") as out:
                            print(json.dumps(row), file=out)

    threads = [threading.Thread(target=work) for _ in range(num_labs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return rows


def _one(seats: Seats, schedule: dict[str, Any], calms: dict[str, dict[str, Any]]) -> dict[str, Any]:
    key = f"{schedule['mode']} {schedule['num_ranks']} {schedule['codec']}"
    for _ in range(2):
        if key not in calms:
            calm = seats.play(schedule, calm=True)
            if all("losses" in row for row in calm["said"].values()) and len(calm["said"]) == schedule["num_ranks"]:
                calms[key] = calm
    if key not in calms:
        return {**schedule, "outcome": "CALM RUN FAILED", "story": str(calm["said"])[:600] + calm["stderr"][0][-600:]}
    result = seats.play(schedule)
    outcome, story = judge(schedule, result, calms[key])
    row = {**schedule, "outcome": outcome, "took_s": result["took_s"], "codes": result["codes"]}
    if outcome[:2].isupper():
        row |= {"story": story, "stderr": [text[-1200:] for text in result["stderr"]]}
    return row


def run() -> dict[str, Any]:
    """Return the table: what became of each kind of fault in each mode."""
    numbers = list(range(int(os.environ.get("SCHEDULES", "500"))))
    path = Path(os.environ["ROWS"]) if "ROWS" in os.environ else None
    if "ONLY" in os.environ:
        numbers, path = [int(word) for word in os.environ["ONLY"].split(",")], None
    try:
        rows = campaign(numbers, path, int(os.environ.get("LABS", "2")))
    except LabError as error:
        return {"skipped": str(error)}
    return report(rows)


def report(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the rows as a table."""
    by_kind: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    by_mode: dict[str, Counter[str]] = {mode: Counter() for mode in MODES}
    for row in rows:
        by_kind[row["strikes"][0]["kind"]][row["outcome"]] += 1
        by_mode[row["mode"]][row["outcome"]] += 1
    bad = [row for row in rows if row["outcome"][:2].isupper()]
    return {
        "asked": 500, "num_schedules": len(rows), "outcomes": dict(Counter(row["outcome"] for row in rows)),
        "by_first_kind": {kind: dict(counts) for kind, counts in by_kind.items()},
        "by_mode": {mode: dict(counts) for mode, counts in by_mode.items()},
        "time_scale": 0.1, "wait_s": WAIT_S, "steps": STEPS, "defects": bad,
        "schedules": [_line(row) for row in sorted(rows, key=lambda row: row["number"])],
    }  # fmt: skip


def _line(row: dict[str, Any]) -> str:
    strikes = ", ".join(f"{one['kind']} {one['rank']} at {one['step']}" for one in row["strikes"])
    where = f"{row['mode']} {row['num_ranks']} {row['codec']} nan={row['nan']}"
    return f"{row['number']}: {where}; {strikes}: {row['outcome']} in {row.get('took_s', 0.0):g} s"


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="schedules-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _clear(folder: Path) -> None:
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _connect(path: str) -> socket.socket:
    end_s = time.monotonic() + 120.0
    while True:
        wire = socket.socket(socket.AF_UNIX)
        try:
            wire.connect(path)
            return wire
        except OSError:
            wire.close()
            if time.monotonic() > end_s:
                raise
            time.sleep(0.1)
