"""The native wire against gloo: dense all-reduce, training steps, rails that fail, faults, GPUs; one command.

    sudo python benchmarks/wire.py --out results            everything that this machine can do
    sudo python benchmarks/wire.py --out results --only dense rails --quick

Ranks run in network namespaces made with pyroute2, each on cores of its own where there are enough; cables are shaped
with tbf. Each part is one JSON file in the folder, written anew whenever one of its turns is over, so that what was
measured before a limit struck is there; run.json says what was asked, summary.txt what it comes to. Peers take turns
in the same run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from rig.cores import CORES_VARIABLE, shares  # noqa: E402
from rig.predicted import predict  # noqa: E402
from rig.rails_rig import RailsRig, burst_bytes, is_possible  # noqa: E402

NUM_HOSTS = 4
RATES_BPS: tuple[float | None, ...] = (None, 1e9, 10e9, 25e9)
ASKED: dict[str, Any] = {}
"""What the command line says of rates, methods, steps and rounds."""
CORES: list[list[int]] = []
"""The processors of each rank; none: any."""
PARTS = ("dense", "steps", "rails", "cuts", "faults", "gpu")


def run() -> dict[str, Any]:
    """Return dense all-reduces and, where there is a GPU, training steps, as `benchmarks/run.py wire` keeps them."""
    parts = ("dense", "gpu")
    with tempfile.TemporaryDirectory() as folder:
        chosen = ["--only", *parts, "--rates", "0", "10", "25", "--variants", "3/1"]
        command = [sys.executable, __file__, "--out", folder, *chosen]
        done = subprocess.run(command, stdout=sys.stderr, check=False)
        if done.returncode:
            return {"missing": ["wire.py needs root for network namespaces"], "all_passed": False}
        return {part: json.loads((Path(folder) / f"{part}.json").read_text()) for part in parts}


def main() -> int:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--hosts", type=int, default=NUM_HOSTS, help="how many hosts of one rank (4)")
    parser.add_argument("--quick", action="store_true", help="few repetitions: whether it runs, not how fast")
    parser.add_argument("--rates", type=float, nargs="+", help="Gb/s; 0: no limit (each part's own)")
    parser.add_argument(
        "--methods",
        nargs="+",
        help="of steps, gpu: compute, ddp, CODEC[/TRANSPORT][/PIECE_MIB][/early]; of cuts: codecs",
    )
    parser.add_argument("--steps", type=int, help="steps of each method, or turns of dense")
    parser.add_argument("--warm-up", type=int, help="steps of each method that do not count")
    parser.add_argument("--rounds", type=int, help="how often methods take their turn")
    parser.add_argument("--again", type=int, help="how often a turn beside a slow processor is taken again (1)")
    parser.add_argument("--bucket-mib", type=float, help="of steps and gpu: DDP's buckets, every method's (DDP's own)")
    parser.add_argument("--variants", nargs="+", help="of dense: THREADS/CONNECTIONS[/PIECE_MIB], each in turn")
    parser.add_argument("--anywhere", action="store_true", help="ranks run on any processor, not on cores of their own")
    chosen = parser.parse_args()
    globals()["NUM_HOSTS"] = chosen.hosts
    for name in ("rates", "methods", "steps", "warm_up", "rounds", "variants", "bucket_mib", "again"):
        if getattr(chosen, name) is not None:
            ASKED[name] = getattr(chosen, name)
    why = is_possible()
    if why and set(chosen.only) != {"faults"}:
        print(f"wire.py: {why}; run it as root, or with --only faults.", file=sys.stderr)
        return 2
    chosen.out.mkdir(parents=True, exist_ok=True)
    ASKED["out"] = chosen.out
    signal.signal(signal.SIGTERM, partial(_stop, os.getpid()))
    CORES[:] = [[] for _ in range(NUM_HOSTS)] if chosen.anywhere else shares(NUM_HOSTS)
    machine = f"{platform.machine()}, {os.cpu_count()} processors, Linux {platform.release()}"
    began = time.strftime("%Y-%m-%d %H:%M")
    asked = {"command": " ".join(sys.argv), "commit": commit(), "machine": machine, "date": began, "cores": CORES}
    (chosen.out / "run.json").write_text(json.dumps(asked) + "\n")
    lines = [f"{machine}, {began}"]
    for part in chosen.only:
        rows = {"dense": dense, "steps": steps, "rails": rails, "cuts": cuts, "faults": faults, "gpu": gpu}[part](
            chosen.quick
        )
        keep(part, rows)
        lines += [f"\n{part}", *map(told, rows)]
        (chosen.out / "summary.txt").write_text("\n".join(lines) + "\n")
        print("\n".join(lines[-len(rows) - 1 :]), flush=True)
    return 0


def _stop(own: int, *ignored: object) -> None:
    """Take namespaces away where a limit strikes; a child that was forked is ended so too, and takes nothing."""
    if os.getpid() != own:
        os._exit(143)
    sys.exit(143)


def keep(part: str, rows: list[dict[str, Any]]) -> None:
    """Write what there is of a part so far; whoever reads meanwhile finds the last whole state."""
    path = ASKED["out"] / f"{part}.json"
    path.with_suffix(".new").write_text(json.dumps(rows, indent=1) + "\n")
    path.with_suffix(".new").replace(path)


def ranks(
    rig: RailsRig,
    task: dict[str, Any],
    num_rails: int = 1,
    timeout_s: float = 1800.0,
    each: Callable[[dict[str, Any]], None] = lambda row: None,
) -> list[dict[str, Any]]:
    """Run a task on one rank a host and return what rank 0 printed; `each` sees rows as they come."""
    port = str(random.randrange(20000, 60000))  # noqa: S311
    names = ",".join(f"eth{rail}" for rail in range(num_rails))
    processes = []
    for rank in range(NUM_HOSTS):
        environment = {"RANK": str(rank), "WORLD_SIZE": str(NUM_HOSTS), "MASTER_ADDR": "10.7.0.1", "MASTER_PORT": port,
                       "GLOO_SOCKET_IFNAME": "eth0", "GLOO_ADDRESS": f"10.7.0.{rank + 1}", "SYNCLINE_RAILS": names,
                       "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "LOCAL_WORLD_SIZE": "1",
                       "SYNCLINE_WIRE_THREADS": threads(), CORES_VARIABLE: ",".join(map(str, CORES[rank])),
                       "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}  # fmt: skip
        command = [sys.executable, str(HERE / "rig" / "wire_rank.py"), json.dumps(task)]
        processes.append(rig.start(rank, command, environment, sys.executable))
    late = threading.Timer(timeout_s, _kill, args=(processes,))
    late.start()
    rows = []
    try:
        for line in processes[0].stdout or ():
            if line.startswith("{"):
                rows.append(json.loads(line))
                each(rows[-1])
                if rows[-1]["what"] == "shape" and processes[0].stdin is not None:
                    print(file=processes[0].stdin, flush=True)
        for process in processes:
            process.wait(timeout=60)
    finally:
        late.cancel()
    if any(process.returncode for process in processes):
        raise RuntimeError(f"a rank ended with status {[process.returncode for process in processes]}")
    return rows


def _kill(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        process.kill()


def _tell(begun: threading.Event, row: dict[str, Any]) -> None:
    """A rank has told its first row: it trains."""
    begun.set()


def commit() -> str:
    """Return the commit that is measured, where this is a checkout."""
    git = ["git", "-C", str(HERE), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    done = subprocess.run(git, capture_output=True, text=True, check=False)
    return done.stdout.strip() or os.environ.get("SYNCLINE_COMMIT", "unknown")


def threads() -> str:
    """Return the wire's threads of a rank: half of the processors, shared by the hosts that are here."""
    return os.environ.get("SYNCLINE_WIRE_THREADS", str(max(1, min(4, (os.cpu_count() or 1) // (NUM_HOSTS + 1)))))


def dense(quick: bool) -> list[dict[str, Any]]:
    """All-reduce of 64 MiB."""
    size = 64 << 20
    turns = ASKED.get("steps", 2 if quick else 15)
    task = {"what": "dense", "size_bytes": size, "turns": turns, "rates_bps": _rates(RATES_BPS), **_variants()}
    sent = 2 * (NUM_HOSTS - 1) / NUM_HOSTS * size
    rows: list[dict[str, Any]] = []
    with RailsRig(NUM_HOSTS) as rig:

        def each(row: dict[str, Any]) -> None:
            rate = row["rate_bps"]
            if row["what"] == "shape":
                if rate is not None:
                    rig.shape(rate)
                return
            rows.append(row)
            gloo = next(peer for peer in rows if peer["way"] == "gloo" and peer["rate_bps"] == rate)
            row["bound_s"] = 0.0 if rate is None else (sent - burst_bytes(rate)) * 8 / rate  # a cable saves up some
            row["of_bound"] = row["bound_s"] / row["median_s"]
            row["times_gloo"], row["cpu_of_gloo"] = gloo["median_s"] / row["median_s"], row["cpu_s"] / gloo["cpu_s"]
            keep("dense", rows)
            print(told(row), flush=True)

        ranks(rig, task, each=each)
    return rows


def steps(quick: bool, device: str = "cpu") -> list[dict[str, Any]]:
    """The training step of a GPT of 25.4M parameters, batch 1 x 128."""
    methods = ["compute", "ddp", "fp32", "bf16", "int8", "int4", "sign"]
    task = {"what": "steps", "methods": methods, "rounds": 1 if quick else 3, "steps": 3 if quick else 10,
            "warm_up": 3, "batch": 1, "length": 128, "device": device}  # fmt: skip
    return _steps(task, RATES_BPS[1:2] if quick else RATES_BPS[1:])


def gpu(quick: bool) -> list[dict[str, Any]]:
    """Four ranks on one GPU: a GPT of 350M parameters in gloo groups."""
    probe = [sys.executable, "-c", "import torch; print(torch.cuda.is_available())"]
    if "True" not in subprocess.run(probe, capture_output=True, text=True, check=False).stdout:
        return [{"what": "gpu", "skipped": "torch sees no CUDA device"}]
    model = {"width": 1024, "depth": 28, "num_heads": 16}
    task = {"what": "gpu", "methods": ["compute", "ddp", "bf16", "int8", "int4", "sign"],
            "rounds": 1, "steps": 2 if quick else 5, "warm_up": 2, "batch": 4, "length": 255, "device": "cuda:0",
            "model": model}  # fmt: skip
    return _steps(task, RATES_BPS[2:3] if quick else RATES_BPS[1:3])


def _variants() -> dict[str, Any]:
    return {"variants": ASKED["variants"]} if "variants" in ASKED else {}


def _rates(own: tuple[float | None, ...]) -> list[float | None]:
    asked = [1e9 * rate or None for rate in ASKED["rates"]] if "rates" in ASKED else own
    return sorted(asked, key=lambda rate: rate is not None)  # a shaper stays once it is there


def _steps(task: dict[str, Any], rates: tuple[float | None, ...]) -> list[dict[str, Any]]:
    task = {
        **task,
        **{
            name: ASKED[name]
            for name in ("methods", "steps", "warm_up", "rounds", "bucket_mib", "again")
            if name in ASKED
        },
    }
    task["methods"] = list(dict.fromkeys(["compute", "ddp", *task["methods"]]))  # the bound and the peer of the others
    task = {"again": 1, **task, "rates_bps": _rates(rates), "out": str(ASKED["out"])}
    seen: list[dict[str, Any]] = []
    with RailsRig(NUM_HOSTS) as rig:

        def each(row: dict[str, Any]) -> None:
            if row["what"] == "shape" and row["rate_bps"] is not None:
                rig.shape(row["rate_bps"])
            seen.append(row)
            keep(task["what"], judged(seen, task))

        ranks(rig, task, timeout_s=7200.0, each=each)
    return judged(seen, task)


def judged(seen: list[dict[str, Any]], task: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each rate and method from its turns so far, with bounds, DDP's time and what was predicted."""
    known = next(row for row in seen if row["what"] == "costs")
    best: dict[tuple[float | None, str, int], dict[str, Any]] = {}
    for row in seen:
        if row["what"] == "turn":  # of those taken again the one with the least slow processor
            key = (row["rate_bps"], row["method"], row["round"])
            best[key] = min(best.get(key, row), row, key=lambda turn: turn["slower"])
    turns: dict[tuple[float | None, str], list[dict[str, Any]]] = {}
    for (rate, method, _), turn in best.items():
        turns.setdefault((rate, method), []).append(turn)
    rows: list[dict[str, Any]] = []
    for (rate, method), taken in turns.items():
        rounds = [turn["ranks"] for turn in taken]
        medians = [max(rank["median_s"] for rank in turn) for turn in rounds]
        rows.append({**task, "rate_bps": rate, "method": method, "median_s": statistics.median(medians),
                     "all_s": medians, "slower": max(turn["slower"] for turn in taken), "ranks": rounds,
                     "wire_bytes": rounds[0][0]["wire_bytes"],
                     **{name: statistics.median(max(rank[name] for rank in turn) for turn in rounds)
                        for name in ("forward_s", "optimizer_s", "cpu_s")},
                     "same_bits": all(len({rank["checksum"] for rank in turn}) == 1 for turn in rounds)})  # fmt: skip
    by_method = {(row["rate_bps"], row["method"]): row for row in rows}
    for row in rows:
        rate = row["rate_bps"]
        compute, ddp = by_method.get((rate, "compute")), by_method.get((rate, "ddp"))
        predict(row, known, NUM_HOSTS)
        if compute is None or ddp is None:
            continue
        compute["costs"] = known
        sent_s = row["wire_bytes"] * 8 / rate if rate else 0.0
        row["bound_s"] = max(compute["median_s"], sent_s)
        # Nothing can be sent before the first gradient is there: the forward pass comes before the bytes.
        row["bound_with_forward_s"] = max(compute["median_s"], compute["forward_s"] + sent_s)
        row["of_bound"] = row["bound_s"] / row["median_s"]
        row["of_bound_with_forward"] = row["bound_with_forward_s"] / row["median_s"]
        row["times_ddp"] = ddp["median_s"] / row["median_s"]
    return rows


def rails(quick: bool) -> list[dict[str, Any]]:
    """Two rails: both well, one cut and mended at random moments, one slowed to a tenth."""
    rows = []
    for name in ("one rail", "both", "cut", "slow"):
        num_rails = 1 if name == "one rail" else 2
        with RailsRig(NUM_HOSTS, num_rails) as rig:
            rig.shape(10e9)
            begun, over = threading.Event(), threading.Event()
            cuts = [0]
            helper = threading.Thread(target=_disturb, args=(rig, name, begun, over, cuts, 3 if quick else 50))
            seconds = 8 if quick else 70 if name == "cut" else 20
            helper.start()
            try:
                task = {"what": "rails", "name": name, "size_bytes": 16 << 20, "seconds": seconds}
                found = ranks(rig, task, num_rails, each=partial(_tell, begun))[1:]
            finally:
                over.set()
                begun.set()
                helper.join()
        rows += [{**row, "num_cuts": cuts[0]} for row in found]
        keep("rails", rows)
    return rows


def cuts(quick: bool) -> list[dict[str, Any]]:
    """Training on two rails: one cut and mended 50 times at random moments, one slowed to a tenth, undisturbed.

    The weights after every step are compared with those of a run whose rails have no limit and are left alone. The
    longest undisturbed step says what the machine itself takes; on a busy one that is most of any pause.
    """
    codecs, names = ASKED.get("methods", ("fp32", "int8")), ("reference", "cut", "slow", "both")
    found: dict[tuple[str, str], dict[str, Any]] = {}
    failed: list[BaseException] = []
    lock = threading.Lock()

    def one(rig: RailsRig, codec: str, name: str) -> None:
        try:
            row = _trained(rig, codec, name, quick)
        except BaseException as error:  # the others go on; who waits for all of them is told
            failed.append(error)
            return
        with lock:
            found[codec, name] = row
            keep("cuts", compared(found))

    with contextlib.ExitStack() as stack:
        rigs = [(stack.enter_context(RailsRig(NUM_HOSTS, 2)), codec, name) for codec in codecs for name in names]
        runs = [threading.Thread(target=one, args=each) for each in rigs]
        at_once = any(CORES)  # they are slow on purpose, and hardly need a processor, but they need some
        for run in runs:
            run.start()
            if not at_once:
                run.join()
        for run in runs:
            run.join()
    if failed:
        raise failed[0]
    return compared(found)


def compared(found: dict[tuple[str, str], dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of runs that are over, each with how many steps differ from those of its reference."""
    rows = []
    for (codec, _), row in sorted(found.items()):
        own = {key: value for key, value in row.items() if key != "checksums"}
        if (codec, "reference") in found:
            due = found[codec, "reference"]["checksums"]
            differ = [a != b for a, b in zip(row["checksums"], due, strict=False)]
            own |= {"steps_compared": len(differ), "steps_that_differ": sum(differ)}
        rows.append(own)
    return rows


def _trained(rig: RailsRig, codec: str, name: str, quick: bool) -> dict[str, Any]:
    """Train on the two rails of a rig, disturbed as the name says."""
    if name != "reference":
        rig.shape(200e6)
    begun, over, done = threading.Event(), threading.Event(), [0]
    helper = threading.Thread(target=_disturb, args=(rig, name, begun, over, done, 3 if quick else 50, 20e6))
    seconds = 12 if quick else {"cut": 58, "reference": 58}.get(name, 30)
    helper.start()
    try:
        task = {"what": "cuts", "name": name, "codec": codec, "seconds": seconds, "most": 4000}
        _, row = ranks(rig, task, 2, each=lambda row: begun.set())
    finally:
        over.set()
        begun.set()
        helper.join()
    return {**row, "num_cuts": done[0]}


def _disturb(
    rig: RailsRig,
    name: str,
    begun: threading.Event,
    over: threading.Event,
    cuts: list[int],
    most: int,
    slow_bps: float = 1e9,
) -> None:
    chance = random.Random(7)  # noqa: S311
    begun.wait()
    if name == "slow":
        rig.shape(slow_bps, rail=1)
    while name == "cut" and cuts[0] < most and not over.is_set():
        host = chance.randrange(NUM_HOSTS)
        rig.cut(host, 1)
        cuts[0] += 1
        over.wait(chance.uniform(0.1, 1.5))
        rig.mend(host, 1)
        over.wait(chance.uniform(0.1, 0.5))


def faults(quick: bool) -> list[dict[str, Any]]:
    """Faults on the wire, from the tests: 0 wrong numbers, 0 hangs."""
    count = 100 if quick else 1000
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/runtime/wire/test_wire_faults.py"]
    done = subprocess.run(command, cwd=HERE.parent, env={**os.environ, "SYNCLINE_NUM_FAULTS": str(count)},
                          capture_output=True, text=True, check=False)  # fmt: skip
    return [{"what": "faults", "num_faults": count, "passed": done.returncode == 0,
             "seconds": time.monotonic() - began, "tail": done.stdout[-2000:]}]  # fmt: skip


def told(row: dict[str, Any]) -> str:
    """Return a measurement on one line."""
    rate = "unshaped" if row.get("rate_bps") is None else f"{row['rate_bps'] / 1e9:g} Gb/s"
    if "skipped" in row:
        return f"  skipped: {row['skipped']}"
    if row["what"] == "dense":
        return (f"  {rate:9} {row['way']:9} {row['median_s'] * 1e3:8.1f} ms, {row['of_bound']:.1%} of the bound, "
                f"{row['times_gloo']:.2f} x gloo, CPU {row['cpu_of_gloo']:.2f} of gloo's, "
                f"same bits: {row['same_and_right']}")  # fmt: skip
    if row["what"] == "faults":
        return f"  {row['num_faults']} faults: {'all passed' if row['passed'] else 'FAILED'} in {row['seconds']:.0f} s"
    if row["what"] == "cuts" and "steps_compared" not in row:
        return f"  {row['codec']:5} {row['name']:5} {row['steps']} steps, not compared: its reference did not end"
    if row["what"] == "cuts":
        return (f"  {row['codec']:5} {row['name']:5} {row['steps']} steps, median {row['median_s'] * 1e3:.0f} ms, "
                f"longest {row['longest_s'] * 1e3:.0f} ms, {row['num_cuts']} cuts, {row['steps_that_differ']} of "
                f"{row['steps_compared']} steps differ, replicas equal: {row['replicas_equal']}")  # fmt: skip
    if row["what"] == "rails":
        ranks_ = row["ranks"]
        return (f"  {row['name']:8} median {max(r['median_s'] for r in ranks_) * 1e3:.1f} ms, longest "
                f"{max(r['longest_s'] for r in ranks_) * 1e3:.0f} ms, {row['num_cuts']} cuts, wrong elements "
                f"{sum(r['wrong_elements'] for r in ranks_)}, by rail {ranks_[0]['bytes_by_rail']}")  # fmt: skip
    disturbed = f", beside a processor {row['slower']:.2f} times slower than it can be" if row["slower"] > 1.15 else ""
    if "of_bound" not in row:
        return f"  {rate:9} {row['method']:20} {row['median_s'] * 1e3:8.1f} ms"
    return (f"  {rate:9} {row['method']:20} {row['median_s'] * 1e3:8.1f} ms, {row['of_bound']:.0%} of the bound, "
            f"{row['of_bound_with_forward']:.0%} with forward, {row['times_ddp']:.2f} x ddp, predicted "
            f"{row['predicted_s'] * 1e3:.1f} ({row['gap']:+.0%}), same bits: {row['same_bits']}"
            f"{disturbed}")  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
