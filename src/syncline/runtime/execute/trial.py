"""A program run many times on numbers whose result is known: how long each rank took, and how much came out wrong.

trial = measure(executor, program, size_bytes=1 << 20, dtype="float", repeats=10)
trial.rank_s.max(axis=0)          # seconds of each repetition, from the common start to the last rank's end
trial.num_wrong                   # elements that are not what the collective says, over all ranks
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from syncline.errors import ExecutionError
from syncline.program.program import Program, ProgramStep
from syncline.runtime.execute.executor import Executor, sleep_until
from syncline.runtime.sync.coding import NOT_CODED
from syncline.schedule.collective import ALL, Collective, split_bytes
from syncline.timeline import SpanKind, Timeline

Floats = NDArray[np.float64]
DTYPES = {
    "float": torch.float32, "double": torch.float64, "half": torch.float16, "bfloat16": torch.bfloat16,
    "int32": torch.int32, "int64": torch.int64, "uint8": torch.uint8,
}  # fmt: skip
"""Types by the names nccl-tests has for them."""

_PERIOD = 17
_HOST_WORK = (SpanKind.REDUCE, SpanKind.COPY, SpanKind.ENCODE, SpanKind.DECODE)


@dataclass(frozen=True, eq=False)
class Trial:
    """Columns by rank and repetition: seconds from the common start, seconds late for it, seconds of the host's work.

    `num_wrong` is None where nothing can be said exactly: with a lossy codec; `error` is then the largest error over
    the largest value. `last` is the timeline of all ranks in the last repetition.
    """

    rank_s: Floats
    late_s: Floats
    work_s: Floats
    num_wrong: int | None
    error: float | None
    last: Timeline


def measure(
    executor: Executor,
    program: Program,
    size_bytes: int,
    *,
    dtype: str = "float",
    warm_up: int = 2,
    repeats: int = 10,
    budget_s: float = float("inf"),
) -> Trial:
    """Run a program `warm_up` and `repeats` times; fewer (but three) when that would take longer than `budget_s`."""
    size = elements(size_bytes, dtype)
    start, want = _given(program.collective, executor.group.rank, size, dtype, executor.group.device)
    buffer = torch.empty_like(start)
    rows: list[tuple[float, float, float]] = []
    timeline: Timeline | None = None
    spent, number = 0.0, 0
    while number < warm_up + repeats:
        buffer.copy_(start)
        timeline = executor.run(program, buffer, size=size)
        took = executor.group.numbers([timeline.end_s]).max()
        if number >= warm_up:
            late = float(timeline.metadata["late_s"])
            rows.append((timeline.end_s, late, float(timeline.busy_s(_HOST_WORK).sum())))
            spent += took
            if len(rows) >= 3 and spent > budget_s:
                break
        elif took * (warm_up + 3) > budget_s:
            number = max(number, warm_up - 1)  # one warm-up must do
        number += 1
    if timeline is None:
        raise ExecutionError(f"nothing was run: {repeats} repetitions.", hint="Ask for at least one.")
    executor.release(executor.bind(program, buffer, size=size))
    wrong, error = _compare(buffer, want)
    table = executor.group.numbers(np.array([*np.array(rows).T.ravel(), wrong, error]))
    columns = table[:, :-2].reshape(executor.group.size, 3, len(rows))[: program.num_ranks]
    lossy = any(isinstance(step, ProgramStep) and step.codec.name not in NOT_CODED for step in program.steps)
    return Trial(
        columns[:, 0], columns[:, 1], columns[:, 2],
        None if lossy else int(table[:, -2].sum()), float(table[:, -1].max()) if lossy else None,
        executor.gather(timeline),
    )  # fmt: skip


def once(executor: Executor, program: Program, size_bytes: int) -> tuple[float, Timeline]:
    """Run a program once after a warm-up: its start on the monotonic clock, and this rank's timeline from there."""
    size = elements(size_bytes, "float")
    buffer = torch.zeros(program.collective.total_bytes(size), device=executor.group.device)
    bound = executor.bind(program, buffer, size=size)
    for _ in range(2):
        start_s = executor.group.agree_start_s(executor.lead_s)
        timeline = bound.run(start_s, sleep_until(start_s))
    executor.release(bound)
    return start_s, timeline


def elements(size_bytes: int, dtype: str) -> int:
    """Return how many elements of a type a size holds."""
    if dtype not in DTYPES:
        raise ExecutionError(f'no type is called "{dtype}".', hint=f"One of: {', '.join(DTYPES)}.")
    return size_bytes // DTYPES[dtype].itemsize


def _given(
    goal: Collective, rank: int, size: int, dtype: str, device: torch.device
) -> tuple[torch.Tensor, list[tuple[slice, torch.Tensor]]]:
    """Return what a rank starts with, and what must be where in the end: small whole numbers, exact in every type."""
    kind = DTYPES[dtype]
    total = goal.total_bytes(size)
    modulus = _modulus(kind, goal.num_ranks)
    start = _wave(_table([rank], modulus), 0, total, kind, device)
    weights = np.cumsum(np.asarray(goal.sizes or (1,) * goal.num_blocks, dtype=np.int64))
    sizes = split_bytes(total, weights)
    first = np.cumsum(sizes) - sizes
    want = []
    for block, (giver, taker) in enumerate(
        zip(goal.givers(goal.num_blocks).tolist(), goal.takers(goal.num_blocks).tolist(), strict=True)
    ):
        if sizes[block] and taker in (ALL, rank) and rank < goal.num_ranks:
            low, high = int(first[block]), int(first[block] + sizes[block])
            givers = list(range(goal.num_ranks)) if giver == ALL else [giver]
            want.append((slice(low, high), _wave(_table(givers, modulus), low, high - low, kind, device)))
    return start, want


def _modulus(kind: torch.dtype, num_ranks: int) -> int:
    """Return below which number all values stay, so that their sum over all ranks is exact in a short type."""
    exact = {torch.bfloat16: 256, torch.float16: 2048}.get(kind, 1 << 20)
    return max(2, min(_PERIOD, exact // num_ranks))


def _table(ranks: list[int], modulus: int) -> list[int]:
    """Return one period of the numbers that these ranks hold, summed."""
    return [sum((at + 5 * rank) % _PERIOD % modulus for rank in ranks) for at in range(_PERIOD)]


def _wave(period: list[int], first: int, count: int, kind: torch.dtype, device: torch.device) -> torch.Tensor:
    turned = torch.tensor(period[first % _PERIOD :] + period[: first % _PERIOD], dtype=torch.int64).to(kind)
    return turned.repeat(-(-count // _PERIOD))[:count].to(device)


def _compare(buffer: torch.Tensor, want: list[tuple[slice, torch.Tensor]]) -> tuple[int, float]:
    wrong, worst, largest = 0, 0.0, 0.0
    for place, right in want:
        got = buffer[place]
        bad = int((got != right).sum())
        wrong += bad
        if bad:
            worst = max(worst, float((got.double() - right.double()).abs().max()))
        largest = max(largest, float(right.double().abs().max()))
    return wrong, worst / largest if largest else 0.0
