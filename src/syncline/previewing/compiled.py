"""What compiled code does to memory: what is inside a fused kernel is never made, and some tensors are made again.

`torch.compile` is captured operator by operator. A run of compiled operators without a product becomes one kernel: what
only it reads stays in registers, and it writes over an input of the same size that nothing else needs. Of what the
forward leaves for the backward, torch's partitioner makes again what fused kernels alone need and what is cheaper kept
as what it is made of; what a product needs, and what kernels far apart read (a residual), is kept.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from syncline.previewing.price import Pricer
from syncline.previewing.record import Capture

RANDOM = ("dropout", "rand", "bernoulli", "normal_", "uniform_")
"""Operators that give something else when they run again."""
ALWAYS = 1 << 60


def fused_runs(captured: Capture, pricer: Pricer, first: int, last: int) -> list[list[int]]:
    """Return the runs of several compiled operators, products not among them, that become one kernel each."""
    return [run for run in _runs(captured, pricer, first, last, set()) if len(run) > 1]


def _runs(captured: Capture, pricer: Pricer, first: int, last: int, also: set[int]) -> list[list[int]]:
    found: list[list[int]] = [[]]
    for index in range(first, min(last + 1, len(captured.ops))):
        op = captured.ops[index]
        joins = op.kind == "kernel" and isinstance(op.extra, list) and (op.extra[0] or index in also)
        if joins and pricer.price(captured.kernels[op.signature]).kind == "memory":
            found[-1].append(index)
        elif found[-1]:
            found.append([])
    return [run for run in found if run]


def without_fused(captured: Capture, pricer: Pricer) -> Capture:
    """Return a capture with the memory of its code when compiled parts are fused; itself where none is compiled."""
    also = _backward_of_compiled(captured)
    runs = _runs(captured, pricer, 0, len(captured.ops), also) if also else []
    return replace(captured, memory=_Lives(captured, runs).events()) if runs else captured


def _backward_of_compiled(captured: Capture) -> set[int]:
    """Return the backward's operators that read what compiled operators of the forward wrote."""
    written: set[int] = set()
    found: set[int] = set()
    for index, op in enumerate(captured.ops):
        if op.kind != "kernel" or not isinstance(op.extra, list):
            continue
        if op.phase == "forward" and op.extra[0]:
            written.update(op.extra[2])
        elif op.phase == "backward" and written.intersection(op.extra[1]):
            found.add(index)
    return found


class _Lives:
    """When each allocation is made and freed, who writes it and who reads it."""

    def __init__(self, captured: Capture, runs: list[list[int]]) -> None:
        self.captured, self.runs = captured, runs
        self.run_of = {index: number for number, run in enumerate(runs) for index in run}
        self.ends = {number: run[-1] for number, run in enumerate(runs)}
        made = Counter(each for _, each, change in captured.memory if change > 0)
        self.born = {each: op for op, each, change in captured.memory if change > 0 and made[each] == 1}
        self.dead = {each: op for op, each, change in captured.memory if change < 0}
        """When an allocation is freed for the last time; of those that are resized (FSDP's) nothing is moved."""
        self.made_of: dict[int, set[int]] = {}  # tensors that are made again
        self.writer: dict[int, int] = {}
        self.readers: dict[int, list[int]] = {}
        for index in range(len(captured.ops)):
            for each in self._touched(index, 2):
                self.writer.setdefault(each, index)
            for each in self._touched(index, 1):
                self.readers.setdefault(each, []).append(index)

    def events(self) -> tuple[tuple[int, int, int], ...]:
        """Return allocations and frees: what is fused or made again is left out, what that is made of stays longer."""
        gone, until = {each for each in self._own() if self._inner(each)}, dict[int, int]()
        for each in sorted({*self._own()} - gone, key=lambda each: -self._size(each)):
            if self._can_be_made_again(each) and self._cut(each, until):
                gone.add(each)
        self._in_place(gone, until)
        rows = [row for row in self.captured.memory if row[1] not in gone and row[1] not in until]
        for each in {*until} - gone:
            size = self._size(each)
            rows += [(self.born[each], each, size), (until[each], each, -size)]
        return tuple(sorted(rows, key=lambda row: (row[0], row[2] > 0)))

    def _own(self) -> list[int]:
        """Return the allocations that fused kernels write, labelled ones (gradients, states) not among them."""
        allocations = self.captured.allocations
        return [a for a, op in self.writer.items() if op in self.run_of and a in self.born and not allocations[a].label]

    def _size(self, each: int) -> int:
        return int(self.captured.allocations[each].size_bytes)

    def _reads(self, each: int, phase: str) -> list[int]:
        return [op for op in self.readers.get(each, ()) if self.captured.ops[op].phase == phase]

    def _inner(self, each: int) -> bool:
        """Whether only the kernel that writes a tensor reads it."""
        run = self.run_of[self.writer[each]]
        reads = self.readers.get(each, [])
        last = max((op for op in reads if self.run_of.get(op) == run), default=self.writer[each])
        within = all(self.run_of.get(op) == run for op in reads)
        return bool(reads) and within and self._freed_before_next(each, last)

    def _freed_before_next(self, each: int, last: int) -> bool:
        """Whether nothing but fused operators of the same kernel runs until it is freed."""
        run = self.run_of[last]
        return all(self.run_of.get(op) == run for op in range(last + 1, min(self.dead.get(each, ALWAYS), last + 64)))

    def _can_be_made_again(self, each: int) -> bool:
        """Whether fused kernels alone need it later: for a product it would have to be written again, so it is kept."""
        index = self.writer[each]
        op = self.captured.ops[index]
        name = self.captured.kernels[op.signature].name
        forward = op.phase == "forward" and not any(word in name for word in RANDOM)
        back = self._reads(each, "backward")
        inside = all(self.run_of.get(op) == self.run_of[index] for op in self._reads(each, "forward"))
        return forward and inside and bool(back) and all(op in self.run_of for op in back)

    def _used_apart(self, each: int) -> bool:
        """Whether another fused kernel of the forward reads it too, as the next sum does a residual."""
        run = self.run_of[self.writer[each]]
        return any(op in self.run_of and self.run_of[op] != run for op in self._reads(each, "forward"))

    def _cut(self, each: int, until: dict[int, int]) -> bool:
        """Keep what a tensor is made of where that costs less than itself; return whether it does."""
        needed = 1 + max(self.ends[self.run_of[op]] for op in self._reads(each, "backward"))
        sources = self._sources(each, set())
        missing = [s for s in sources if max(self.dead.get(s, ALWAYS), until.get(s, 0)) < needed]
        moved = all(source in self.born for source in missing)
        if not moved or sum(self._size(source) for source in missing) >= self._size(each):
            return False
        until |= {source: max(until.get(source, 0), needed) for source in missing}
        self.made_of[each] = sources
        return True

    def _in_place(self, gone: set[int], until: dict[int, int]) -> None:
        """Let a fused kernel write over an input of the same size that nothing reads after it."""
        for run in self.runs:
            reads = {each for op in run for each in self._touched(op, 1)}
            reads |= {source for each in reads for source in self.made_of.get(each, ())}
            writes = [each for op in run for each in self._touched(op, 2) if each not in gone and each in self.born]
            ends = {a: until.get(a, self.dead.get(a, ALWAYS)) for a in reads - gone if a in self.born}
            free = {a: end for a, end in ends.items() if run[0] <= end <= run[-1] + 1 and self.born[a] < run[0]}
            for made in writes:
                same = next((a for a in free if self._size(a) == self._size(made) and free[a] > self.born[made]), None)
                if same is not None and self.born[made] >= run[0]:
                    until[same] = self.born[made]
                    del free[same]

    def _touched(self, index: int, part: int) -> list[int]:
        """Return the allocations that a kernel reads (1) or writes (2)."""
        op = self.captured.ops[index]
        return list(op.extra[part]) if op.kind == "kernel" and isinstance(op.extra, list) else []

    def _sources(self, each: int, seen: set[int]) -> set[int]:
        """Return what a tensor is made of: what products, inputs and residuals are."""
        found: set[int] = set()
        for other in self._touched(self.writer[each], 1):
            if other == each or other in seen:
                continue
            seen.add(other)
            made = self.writer.get(other, -1) in self.run_of and other in self.born
            if made and not self.captured.allocations[other].label and not self._used_apart(other):
                found |= self._sources(other, seen)
            else:
                found.add(other)
        return found
