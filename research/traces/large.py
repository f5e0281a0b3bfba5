"""A real trace laid end to end until it has gigabytes, and one laid out as many ranks: what reading them costs.

    python -m research.traces.large TRACE            # 2 GB of one rank, then 64 ranks, in a temporary folder

Events keep everything but their times, step names and correlation numbers, which are moved on with every copy; rank r
comes r % 8 * 100 us late to its collectives. Prints CPU seconds and the peak of memory of `syncline explain`.
"""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BYTES, RANKS = 2_000_000_000, 64
MOVED = re.compile(r'"<ts>"|(?<="correlation": )\d+|(?<="External id": )\d+|(?<="ProfilerStep#)\d+')
MEASURED = """
import resource, sys, syncline
found = syncline.explain(sys.argv[1:]).result
used = resource.getrusage(resource.RUSAGE_SELF)
print(f"{found.ranks} ranks, {found.steps} steps: {used.ru_utime:.1f} CPU s, peak {used.ru_maxrss / 1024:.0f} MiB, "
      f"step {1e3 * found.account.step_s:.4g} ms, sum {1e3 * sum(l.seconds for l in found.account.lines):.4g} ms, "
      f"late {[one.rank for one in found.late][:4]}")
"""


def read(path: Path) -> dict[str, Any]:
    """Return a trace."""
    data = path.read_bytes()
    found: dict[str, Any] = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    return found


def copies(trace: dict[str, Any]) -> Iterator[str]:
    """Yield the trace's events again and again as text, each time later: one template, filled with other numbers."""
    events = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    begin = min(event["ts"] for event in events)
    length = max(event["ts"] + event.get("dur", 0) for event in events) - begin
    steps = len({event["name"] for event in events if str(event.get("name")).startswith("ProfilerStep#")})
    numbers: list[float] = []
    moves: list[float] = []

    def hole(hit: re.Match[str], event: dict[str, Any]) -> str:
        moment = hit[0] == '"<ts>"'
        numbers.append(event["ts"] if moment else int(hit[0]))
        moves.append(length if moment else steps if hit.string[hit.start() - 1] == "#" else 10_000_000)
        return "%.3f" if moment else "%d"

    texts = []
    for event in events:
        text = json.dumps(event | {"ts": "<ts>"}).replace("%", "%%")
        texts.append(MOVED.sub(lambda hit, event=event: hole(hit, event), text))  # type: ignore[misc]
    template = ",\n".join(texts)
    for copy in range(1 << 20):
        yield template % tuple(number + copy * add for number, add in zip(numbers, moves, strict=True))


def one_rank(trace: dict[str, Any], path: Path) -> Path:
    """Write gigabytes of one rank."""
    with path.open("w") as file:
        file.write('{"schemaVersion": 1, "traceEvents": [')
        size = 0
        for text in copies(trace):
            file.write(f"{',' if size else ''}\n{text}")
            size += len(text) + 2
            if size > BYTES:
                break
        file.write("]}")
    return path


def many_ranks(trace: dict[str, Any], folder: Path) -> Path:
    """Write a trace a rank: what a rank computes before its first collective takes longer on some."""
    folder.mkdir()
    for rank in range(RANKS):
        late = rank % 8 * 100.0
        events = []
        for event in trace["traceEvents"]:
            waits = event.get("cat") in ("kernel", "Kernel") and "nccl" in str(event.get("name"))
            shorter = min(late, 0.5 * event.get("dur", 0)) if waits else 0.0
            events.append(dict(event, ts=event["ts"] + shorter, dur=event["dur"] - shorter) if waits else event)
        info = {"backend": "nccl", "rank": rank, "world_size": RANKS}
        text = json.dumps({**trace, "distributedInfo": info, "traceEvents": events})
        (folder / f"rank{rank:02}.json.gz").write_bytes(gzip.compress(text.encode(), 1))
    return folder


def main() -> None:
    """Make both and explain them, each in a process of its own."""
    trace = read(Path(sys.argv[1]))
    with tempfile.TemporaryDirectory() as scratch:
        for path in (one_rank(trace, Path(scratch) / "large.json"), many_ranks(trace, Path(scratch) / "ranks")):
            size = sum(file.stat().st_size for file in ([path] if path.is_file() else path.iterdir()))
            print(f"{path.name}: {size / 1e9:.2f} GB", flush=True)
            subprocess.run([sys.executable, "-c", MEASURED, str(path)], check=True)


if __name__ == "__main__":
    main()
