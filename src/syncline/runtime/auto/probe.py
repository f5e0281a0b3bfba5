"""What a choice follows from: every rank's link, processor and codecs, measured in a fraction of a second."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch

from syncline.codec.low_rank import LowRank
from syncline.codec.names import PLAIN, dense, scheme
from syncline.program.choice import ChoiceBasis, CodecPrice
from syncline.program.overlap import Work
from syncline.runtime.alive.agreement import exchange_json
from syncline.runtime.wire.links import GroupLinks
from syncline.runtime.wire.team import Team

ENOUGH_S = 0.1
"""A transfer of this length tells the rate: it is longer than bursts of a shaper and slow start are."""
LARGEST_BYTES = 32 << 20
SAMPLE = 1 << 18
GUESSED_BUCKET = 25 << 18


def probe_link(team: Team) -> dict[str, float]:
    """Return rate, latency of a message, and the processor's time of a byte and a message; every rank calls it."""
    small = torch.zeros(1, device=team.device)
    team.all_reduce(small)
    rounds = max(1, 2 * (team.size - 1))
    times, own = [], time.process_time()
    for _ in range(8):
        began = time.perf_counter()
        team.all_reduce(small)
        times.append(time.perf_counter() - began)
    message_s = (time.process_time() - own) / (8 * rounds)
    latency_s = _largest(median(times), team) / rounds
    size = 1 << 16
    while True:
        values = torch.zeros(size // 4, device=team.device)
        team.all_reduce(small)
        began, own = time.perf_counter(), time.process_time()
        team.all_reduce(values)
        took, spent = _largest(time.perf_counter() - began, team), time.process_time() - own
        if took >= ENOUGH_S or size >= LARGEST_BYTES:
            break
        size *= 4 if took < ENOUGH_S / 8 else 2
    moved = rounds * size / team.size
    return {
        "rate_Bps": moved / max(took - rounds * latency_s, 0.2 * took),
        "latency_s": latency_s,
        "byte_s": max(0.0, spent - rounds * message_s) / moved,
        "message_s": message_s,
    }


def prices(names: Sequence[str], shapes: Sequence[tuple[int, ...]], device: torch.device) -> list[CodecPrice]:
    """Return what each codec costs one processor here for one element; codecs of another device cost nothing of it."""
    found = []
    for name in names:
        if name == PLAIN:
            continue
        known = scheme(name)
        if isinstance(known, LowRank):
            found.append(_low_rank(name, known, shapes))
        elif device.type == "cpu":
            found.append(_price(name))
        else:
            found.append(CodecPrice(name, 0.0, 0.0))
    return found


def add_s() -> float:
    """Return the processor's time to add one element to another."""
    one, other = torch.zeros(SAMPLE), torch.ones(SAMPLE)
    return _thread_s(lambda: one.add_(other)) / SAMPLE


def host() -> dict[str, object]:
    """Return which host this rank shares with others, and how many processors it has."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    name = boot.read_text("ascii").strip() if boot.exists() else socket.gethostname()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {"host": name, "cores": cores}


def _price(name: str) -> CodecPrice:
    known = dense(name)
    values, residual = torch.randn(SAMPLE).numpy(), torch.zeros(SAMPLE).numpy()
    payload, out = torch.zeros(known.wire_bytes(SAMPLE), dtype=torch.uint8).numpy(), torch.zeros(SAMPLE).numpy()
    encode = _thread_s(lambda: known.encode(values, payload, residual))
    decode = _thread_s(lambda: known.decode(payload, out, add=True))
    return CodecPrice(name, encode / SAMPLE, decode / SAMPLE)


def _low_rank(name: str, known: LowRank, shapes: Sequence[tuple[int, ...]]) -> CodecPrice:
    geometry = known.exchange(list(shapes))
    elements = sum(torch.Size(shape).numel() for shape in shapes)
    ratio = (geometry.num_first + geometry.num_second) / max(1, elements)
    m, g = torch.randn(512, 512), torch.randn(512, 512)
    p, q = torch.randn(512, known.rank), torch.randn(512, known.rank)

    def middle() -> None:
        torch.mm(m.t(), p, out=q)
        m.addmm_(p, q.t(), alpha=-1e-6)

    encode = _thread_s(lambda: torch.mm(m.add_(g, alpha=1e-6), q, out=p))
    decode = _thread_s(lambda: torch.mm(p, q.t(), out=g))
    return CodecPrice(name, encode / m.numel(), decode / m.numel(), _thread_s(middle) / m.numel(), ratio)


def _thread_s(call: Callable[[], object]) -> float:
    call()
    times = []
    for _ in range(3):
        began = time.thread_time()
        call()
        times.append(time.thread_time() - began)
    return median(times)


def _largest(value: float, team: Team) -> float:
    """Return the largest value of all ranks."""
    rooms = [torch.zeros(1, dtype=torch.float64, device=team.device) for _ in range(team.size)]
    team.all_gather(rooms, torch.tensor([value], dtype=torch.float64, device=team.device)).wait()
    return max(float(room) for room in rooms)


def gathered_costs(names: Sequence[str], shapes: Sequence[tuple[int, ...]], links: GroupLinks) -> dict[str, Any]:
    """Return this rank's numbers, gathered so that every rank works with the same ones."""
    link = probe_link(links.team)
    found = [asdict(price) for price in prices(names, shapes, links.device)]
    own = {**link, **host(), "add_s": add_s(), "prices": found}
    rows = exchange_json(own, links.team)
    return {**rows[0], "rate_Bps": min(row["rate_Bps"] for row in rows), "cores": _cores(rows)}


def basis_of(rows: list[dict[str, Any]], work: Work, num_ranks: int, piece_bytes: int) -> ChoiceBasis:
    """Return the numbers of all ranks as one."""
    first = rows[0]
    return ChoiceBasis(
        num_ranks,
        min(row["rate_Bps"] for row in rows),
        max(row["latency_s"] for row in rows),
        first["cores"],
        fmean(row["byte_s"] for row in rows),
        fmean(row["message_s"] for row in rows),
        fmean(row["add_s"] for row in rows),
        work,
        tuple(CodecPrice(**price) for price in first["prices"]),
        piece_bytes,
    )


def guessed_work(shapes: Sequence[tuple[int, ...]]) -> Work:
    """Return what is known of a step before the first: its gradients, in buckets as DDP makes them."""
    total = sum(torch.Size(shape).numel() for shape in shapes)
    num = max(1, round(total / GUESSED_BUCKET))
    return Work(0.0, (0.0,) * num, (total // num,) * num, 0.0)


def _cores(rows: list[dict[str, Any]]) -> float:
    """Return the processors of all ranks together, as if every host gave its ranks what the scarcest gives."""
    hosts = [row["host"] for row in rows]
    return min(float(row["cores"]) / hosts.count(row["host"]) for row in rows) * len(rows)
