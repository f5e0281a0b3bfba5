"""Top-k by threshold: a sampled histogram finds the threshold, one pass selects, the host never waits.

The order of the kept elements is not that of the reference (programs take places as they come); the set is, unless more
reach the threshold than fit.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from syncline.runtime.sync.gpu.arithmetic import EXACT, INF_BITS, magnitude_bits

BIN_SHIFT = 16
NUM_BINS = 1 << 15
EXACT_UP_TO = 1 << 16
SAMPLE_EVERY = 1024
"""Above EXACT_UP_TO one run of 32 elements in so many runs is looked at."""
RUN = 32
TILE = 2048
POISONED = 1
NUM_REGIONS = 32
COUNTER_STRIDE = tl.constexpr(64)  # counters in different parts of the cache
ROWS, COLUMNS = 8, 128


@dataclass(frozen=True)
class Scratch:
    """Device memory that one stream of encodes uses again and again.

    `threshold` holds the bits of the threshold, how many lie above its bin, and the floor of the next histogram.
    Selected elements stand in regions, each with a counter of its own; word 1 says whether any was not finite.
    """

    counts: torch.Tensor
    threshold: torch.Tensor
    counters: torch.Tensor
    indices: torch.Tensor
    kept: torch.Tensor
    num_regions: int
    room: int

    @classmethod
    def on(cls, device: torch.device, num_elements: int, capacity: int) -> Scratch:
        """Return scratch on a device for arrays of `num_elements` of which `capacity` fit in a payload."""
        regions = 1 if num_elements <= EXACT_UP_TO else NUM_REGIONS
        # Programs go round the regions, so they fill evenly; what a full one cannot take is owed.
        room = capacity if regions == 1 else min(capacity, capacity // regions + capacity // (4 * regions) + 4096)
        return cls(
            torch.zeros(NUM_BINS, dtype=torch.int32, device=device),
            torch.zeros(3, dtype=torch.int32, device=device),
            torch.zeros(NUM_REGIONS * COUNTER_STRIDE.value, dtype=torch.int32, device=device),
            torch.empty(regions * room, dtype=torch.int32, device=device),
            torch.empty(regions * room, device=device),
            regions,
            room,
        )


@triton.jit
def _count_bins(values, residual, counts, threshold, n, num_runs, stride, offset, RUNS: tl.constexpr,
                RUN: tl.constexpr, SHIFT: tl.constexpr, FEEDBACK: tl.constexpr):  # fmt: skip
    """Count sampled magnitudes by bin, those from the floor of the last step up: the rest cannot matter."""
    run = tl.program_id(0) * RUNS + tl.arange(0, RUNS)
    at = (run.to(tl.int64) * stride + offset)[:, None] * RUN + tl.arange(0, RUN)[None, :]
    mask = (run < num_runs)[:, None] & (at < n)
    a = tl.load(values + at, mask=mask, other=0.0)
    if FEEDBACK:
        a = a + tl.load(residual + at, mask=mask, other=0.0)
    bits = magnitude_bits(a)
    tl.atomic_add(counts + (bits >> SHIFT), 1, mask=mask & (bits >= tl.load(threshold + 2)), sem="relaxed")


@triton.jit
def _reach(counts, threshold, wanted, SHIFT: tl.constexpr, STEER: tl.constexpr):
    """Leave in threshold[0] the lower edge of the highest bin from which up `wanted` lie, in [1] what lies above it.

    With fewer than `wanted` above the floor the floor itself is taken; the next floor is half the threshold.
    """
    coarse = tl.arange(0, 256)
    here = tl.load(counts + coarse[:, None] * 128 + tl.arange(0, 128)[None, :])
    row = tl.sum(here, axis=1)
    from_row_up = tl.sum(row, axis=0) - tl.cumsum(row, axis=0) + row
    chosen = tl.max(tl.where(from_row_up >= wanted, coarse, 0), axis=0)
    above_row = tl.sum(tl.where(coarse > chosen, row, 0), axis=0)
    fine = tl.arange(0, 128)
    inside = tl.load(counts + chosen * 128 + fine)
    from_bin_up = above_row + tl.sum(inside, axis=0) - tl.cumsum(inside, axis=0) + inside
    place = tl.max(tl.where(from_bin_up >= wanted, fine, 0), axis=0)
    above = above_row + tl.sum(tl.where(fine > place, inside, 0), axis=0)
    found = tl.maximum(tl.maximum((chosen * 128 + place) << SHIFT, tl.load(threshold + 2)), 1)
    tl.store(threshold, found)
    tl.store(threshold + 1, above)
    tl.store(threshold + 2, tl.maximum(found - (1 << 23), 0) if STEER else 0)
    tl.store(counts + coarse[:, None] * 128 + tl.arange(0, 128)[None, :], tl.zeros((256, 128), tl.int32))


@triton.jit
def _count_inside(values, residual, counts, threshold, n, TILE: tl.constexpr, SHIFT: tl.constexpr,
                  FEEDBACK: tl.constexpr):  # fmt: skip
    """Count the low bits of the elements in the bin that the first histogram reached, in halves of 2^15."""
    at = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    mask = at < n
    a = tl.load(values + at, mask=mask, other=0.0)
    if FEEDBACK:
        a = a + tl.load(residual + at, mask=mask, other=0.0)
    bits = magnitude_bits(a)
    inside = mask & ((bits >> SHIFT) == (tl.load(threshold) >> SHIFT))
    tl.atomic_add(counts + (bits & ((1 << SHIFT) - 1)), 1, mask=inside, sem="relaxed")


@triton.jit
def _reach_inside(counts, threshold, wanted, LOW: tl.constexpr, SHIFT: tl.constexpr):
    at = tl.arange(0, LOW)
    here = tl.load(counts + at)
    bin_ = tl.load(threshold) >> SHIFT
    left = wanted - tl.load(threshold + 1)
    from_here_up = tl.sum(here, axis=0) - tl.cumsum(here, axis=0) + here
    low = tl.max(tl.where((from_here_up >= left) & (at > 0), at, 0), axis=0)
    tl.store(threshold, tl.maximum((bin_ << SHIFT) | low, 1))


@triton.jit
def _select(values, residual, threshold, counters, indices, kept, n, room, REGIONS: tl.constexpr, ROWS: tl.constexpr,
            COLUMNS: tl.constexpr, EVEN: tl.constexpr, FEEDBACK: tl.constexpr):  # fmt: skip
    """Put what reaches the threshold into this program's region, in places that one atomic a program hands out.

    Programs go round the regions: with one counter for all, they would queue for it longer than they read.
    """
    program = tl.program_id(0)
    base = program.to(tl.int64) * (ROWS * COLUMNS)
    region = program % REGIONS
    lane = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    inside = lane >= 0 if EVEN else base + lane < n
    a = tl.load(values + base + lane, mask=inside, other=0.0)
    if FEEDBACK:
        a = a + tl.load(residual + base + lane, mask=inside, other=0.0)
    bits = magnitude_bits(a)
    bad = bits >= INF_BITS
    reaches = (bits >= tl.load(threshold)) & inside & (bits < INF_BITS)
    one = reaches.to(tl.int32)
    # One sum tells both: how many reach the threshold (low half) and whether any is not finite (high half).
    row = tl.sum(one + (bad.to(tl.int32) << 16), axis=1)
    both = tl.sum(row, axis=0)
    first = tl.atomic_add(counters + region * COUNTER_STRIDE, both & 0xFFFF, sem="relaxed")
    before = tl.cumsum(row & 0xFFFF, axis=0) - (row & 0xFFFF)
    place = first + before[:, None] + tl.cumsum(one, axis=1) - 1
    taken = reaches & (place < room)
    tl.store(indices + region * room + place, (base + lane).to(tl.int32), mask=taken)
    tl.store(kept + region * room + place, a, mask=taken)
    if FEEDBACK:
        tl.store(residual + base + lane, tl.where(taken | bad, 0.0, a), mask=inside)
    if both >= 65536:
        tl.atomic_or(counters + 1, 1, sem="relaxed")


@triton.jit
def _gather(residual, counters, region_indices, region_kept, header, indices, kept, room, capacity,
            REGIONS: tl.constexpr, TILE: tl.constexpr, FEEDBACK: tl.constexpr):  # fmt: skip
    """Move one region's elements to their places in the payload; what does not fit, or is poisoned, is owed again."""
    region = tl.program_id(1)
    other = tl.arange(0, REGIONS)
    held = tl.minimum(tl.load(counters + other * COUNTER_STRIDE), room)
    count = tl.sum(tl.where(other == region, held, 0), axis=0)
    first = tl.sum(tl.where(other < region, held, 0), axis=0)
    poisoned = tl.load(counters + 1) == 1
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    mask = at < count
    index = tl.load(region_indices + region * room + at, mask=mask, other=0)
    value = tl.load(region_kept + region * room + at, mask=mask, other=0.0)
    fits = mask & (first + at < capacity) & (poisoned == 0)
    tl.store(indices + first + at, index, mask=fits)
    tl.store(kept + first + at, value, mask=fits)
    if FEEDBACK:
        tl.store(residual + index, value, mask=mask & (fits == 0))
    if (tl.program_id(0) == 0) & (region == 0):
        total = tl.minimum(tl.sum(held, axis=0), capacity)
        tl.store(header, tl.where(poisoned, 0, total))
        tl.store(header + 1, poisoned.to(tl.int32))


@triton.jit
def _clear(header, indices, kept, capacity, TILE: tl.constexpr):
    """Zero the places that are not used."""
    place = tl.program_id(0) * TILE + tl.arange(0, TILE)
    idle = (place < capacity) & (place >= tl.load(header))
    tl.store(indices + place, tl.zeros((TILE,), tl.int32), mask=idle)
    tl.store(kept + place, tl.zeros((TILE,), tl.float32), mask=idle)


@triton.jit
def _check(indices, count, header, n, TILE: tl.constexpr):
    place = tl.program_id(0) * TILE + tl.arange(0, TILE)
    index = tl.load(indices + place, mask=place < count, other=0)
    if tl.max(((index < 0) | (index >= n)).to(tl.int32), axis=0) == 1:
        tl.atomic_or(header, 1, sem="relaxed")


@triton.jit
def _scatter(indices, kept, out, count, factor, TILE: tl.constexpr):
    place = tl.program_id(0) * TILE + tl.arange(0, TILE)
    mask = place < count
    index = tl.load(indices + place, mask=mask, other=0)
    tl.atomic_add(out + index, tl.load(kept + place, mask=mask, other=0.0) * factor, mask=mask, sem="relaxed")


@triton.jit
def _owe_kept(residual, header, indices, error, TILE: tl.constexpr):
    place = tl.program_id(0) * TILE + tl.arange(0, TILE)
    mask = place < tl.load(header)
    index = tl.load(indices + place, mask=mask, other=0)
    tl.store(residual + index, tl.load(error + place, mask=mask, other=0.0), mask=mask)


def find_threshold(values: torch.Tensor, residual: torch.Tensor | None, scratch: Scratch, wanted: int,
                   stride: int, offset: int) -> None:  # fmt: skip
    """Leave in the scratch the bits of a magnitude that about `wanted` elements reach; exactly so with stride 1."""
    n = values.numel()
    owed = values if residual is None else residual
    feedback = residual is not None
    runs = triton.cdiv(n, RUN) if stride == 1 else max(1, n // RUN // stride)
    if stride == 1:
        scratch.threshold.zero_()
    _count_bins[(triton.cdiv(runs, 16),)](
        values, owed, scratch.counts, scratch.threshold, n, runs, stride, offset, 16, RUN, BIN_SHIFT, feedback,
        num_warps=4, **EXACT,
    )  # fmt: skip
    sampled = wanted if stride == 1 else max(1, wanted * runs * RUN // n)
    _reach[(1,)](scratch.counts, scratch.threshold, sampled, BIN_SHIFT, stride > 1, num_warps=16)
    if stride == 1:
        counts = torch.zeros(1 << BIN_SHIFT, dtype=torch.int32, device=values.device)
        _count_inside[(triton.cdiv(n, TILE),)](
            values, owed, counts, scratch.threshold, n, TILE, BIN_SHIFT, feedback, num_warps=4, **EXACT
        )
        _reach_inside[(1,)](counts, scratch.threshold, wanted, 1 << BIN_SHIFT, BIN_SHIFT, num_warps=32)


def select(values: torch.Tensor, residual: torch.Tensor | None, scratch: Scratch, header: torch.Tensor,
           indices: torch.Tensor, kept: torch.Tensor) -> None:  # fmt: skip
    """Take the elements that reach the threshold of the scratch, as many as fit, and write header and places."""
    n, capacity = values.numel(), indices.numel()
    owed, feedback = (values, False) if residual is None else (residual, True)
    regions, room = scratch.num_regions, scratch.room
    scratch.counters.zero_()
    _select[(triton.cdiv(n, ROWS * COLUMNS),)](
        values, owed, scratch.threshold, scratch.counters, scratch.indices, scratch.kept, n, room, regions, ROWS,
        COLUMNS, n % (ROWS * COLUMNS) == 0, feedback, num_warps=4, **EXACT,
    )  # fmt: skip
    _gather[(triton.cdiv(room, 1024), regions)](
        owed, scratch.counters, scratch.indices, scratch.kept, header, indices, kept, room, capacity, regions, 1024,
        feedback, num_warps=4,
    )  # fmt: skip
    _clear[(triton.cdiv(capacity, 1024),)](header, indices, kept, capacity, 1024, num_warps=4)


def outside(indices: torch.Tensor, count: int, num_elements: int) -> bool:
    """Tell whether any of the first `count` places lies outside the array; waits for the device."""
    bad = torch.zeros(1, dtype=torch.int32, device=indices.device)
    if count:
        _check[(triton.cdiv(count, 1024),)](indices, count, bad, num_elements, 1024, num_warps=4)
    return bool(bad.item())


def scatter(indices: torch.Tensor, kept: torch.Tensor, count: int, out: torch.Tensor, scale: float) -> None:
    """Add the kept values at their places, which have been checked."""
    if count:
        _scatter[(triton.cdiv(count, 1024),)](indices, kept, out, count, scale, 1024, num_warps=4, **EXACT)


def owe(residual: torch.Tensor, header: torch.Tensor, indices: torch.Tensor, error: torch.Tensor) -> None:
    """Leave at the kept places what a second codec lost of them."""
    capacity = indices.numel()
    _owe_kept[(triton.cdiv(capacity, 1024),)](residual, header, indices, error, 1024, num_warps=4)
