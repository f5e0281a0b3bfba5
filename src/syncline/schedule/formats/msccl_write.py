"""Write a schedule as MSCCL XML that the MSCCL runtime accepts.

Every pair of GPUs that exchange data on a channel gets one thread block that sends and one that receives; a block waits
for others of its GPU where it needs what they wrote or overwrites what they read. Chunks of the file are the largest
equal pieces that all chunks of the schedule are made of.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from math import lcm
from xml.sax.saxutils import quoteattr

from syncline.errors import ScheduleError
from syncline.schedule.collective import OWNED, PAIRED, Kind
from syncline.schedule.counts import chunk_units
from syncline.schedule.moves import MoveOp, Moves
from syncline.schedule.schedule import NO_HOME, Schedule

NAMES = {
    Kind.ALL_REDUCE: "allreduce", Kind.REDUCE_SCATTER: "reducescatter", Kind.ALL_GATHER: "allgather",
    Kind.ALL_TO_ALL: "alltoall", Kind.BROADCAST: "broadcast", Kind.REDUCE: "reduce",
}  # fmt: skip
PROTOCOLS = ("Simple", "LL", "LL128")
MAX_MOVES = 1 << 19
MAX_CHUNKS = 1 << 16
MAX_STEPS, MAX_BLOCKS, MAX_CHANNELS, MAX_COUNT = 256, 216, 32, 71
"""What the runtime allows: steps a thread block, thread blocks a GPU, channels, chunks a step."""

MAX_SIZE_BYTES = 1 << 40
"""The file is for buffers of any size."""

Spot = tuple[str, int]
"""(buffer, offset)."""


@dataclass
class _Step:
    type: str
    src: Spot
    dst: Spot
    count: int
    wait: tuple[int, int] = (-1, -1)
    awaited: bool = False


@dataclass
class _Block:
    send: int
    recv: int
    channel: int
    steps: list[_Step] = field(default_factory=list)


@dataclass
class _Run:
    """Chunks side by side that one GPU sends to another (or keeps) in one round."""

    here: int
    there: int
    op: int
    first: Spot
    last: Spot
    count: int

    def goes_on(self, other: _Run) -> bool:
        """Whether the other begins where this one ends, at both ends, and a step can hold both."""
        ends = [(buffer, offset + self.count) for buffer, offset in (self.first, self.last)]
        same = (self.here, self.there, self.op) == (other.here, other.there, other.op)
        return same and ends == [other.first, other.last] and self.count + other.count <= MAX_COUNT


class _Gpu:
    """One GPU being written: its blocks, where each chunk lives, and who touched each spot last."""

    def __init__(self) -> None:
        self.blocks: list[_Block] = []
        self.index: dict[tuple[str, int, int], int] = {}
        self.scratch: dict[tuple[int, int, int], int] = {}
        self.num_scratch = 0
        self.writer: dict[Spot, tuple[int, int]] = {}
        self.readers: dict[Spot, dict[int, int]] = defaultdict(dict)

    def block(self, way: str, peer: int, channel: int) -> int:
        key = (way, peer, channel)
        if key not in self.index:
            self.index[key] = len(self.blocks)
            self.blocks.append(_Block(peer if way == "send" else -1, peer if way == "recv" else -1, channel))
        return self.index[key]

    def add(self, number: int, step: _Step, reads: list[Spot], writes: list[Spot]) -> None:
        """Append a step behind everything it must wait for."""
        waits: dict[int, int] = {}
        for spot in (*reads, *writes):
            if spot in self.writer:
                other, at = self.writer[spot]
                waits[other] = max(waits.get(other, -1), at)
        for spot in writes:
            for other, at in self.readers[spot].items():
                waits[other] = max(waits.get(other, -1), at)
        waits.pop(number, None)
        block = self.blocks[number]
        for other, at in list(waits.items())[:-1]:
            block.steps.append(_Step("nop", ("i", -1), ("o", -1), 0, (other, at)))
        for other, at in waits.items():
            self.blocks[other].steps[at].awaited = True
            step.wait = (other, at)
        block.steps.append(step)
        here = len(block.steps) - 1
        for spot in reads:
            self.readers[spot][number] = here
        for spot in writes:
            self.writer[spot] = (number, here)
            self.readers[spot] = {}


def write_msccl(schedule: Schedule, *, protocol: str = "Simple") -> str:
    """Return a schedule as MSCCL XML, or say why the format cannot hold it."""
    return _Writing(schedule, protocol).text()


class _Writing:
    def __init__(self, schedule: Schedule, protocol: str) -> None:
        kind = schedule.collective.kind
        if kind not in NAMES or schedule.collective.sizes:
            raise ScheduleError(f"MSCCL XML has no {kind}{' of uneven sizes' if schedule.collective.sizes else ''}.",
                                hint=f"It has {', '.join(NAMES)}.")  # fmt: skip
        if any(home == NO_HOME for home in schedule.device_rank()):
            raise ScheduleError(f"{schedule.name}: MSCCL XML has no servers and no reducing switches.")
        if protocol not in PROTOCOLS:
            raise ScheduleError(f'protocol "{protocol}" is not one of {", ".join(PROTOCOLS)}.')
        if schedule.num_moves > MAX_MOVES:
            raise ScheduleError(f"{schedule.name}: {schedule.num_moves:,} moves are too many for an MSCCL file "
                                f"(at most {MAX_MOVES:,}).")  # fmt: skip
        self.schedule, self.kind, self.protocol = schedule, kind, protocol
        self.n = schedule.num_ranks
        self.homes: list[int] = schedule.device_rank().tolist()
        self.per_loop = self._unit()
        self.layout = [schedule.chunk_layout(k, self.per_loop) for k in range(len(schedule.strands))]
        self.gpus = [_Gpu() for _ in range(self.n)]

    def _unit(self) -> int:
        """Return the fewest equal chunks of the buffer that every chunk of the schedule is a whole number of."""
        blocks = self.n if self.kind in OWNED | PAIRED else 1
        num_parts, low = blocks, Fraction(0)
        for strand in self.schedule.strands:
            units = chunk_units(self.schedule, strand)
            total = int(units.sum()) if blocks == 1 else strand.num_chunks // self.schedule.collective.num_blocks
            total *= strand.pieces
            parts = [strand.share * Fraction(weight, total) for weight in {int(unit) for unit in units}]
            num_parts = lcm(num_parts, *((part / blocks).denominator for part in (low, *parts)))
            low += strand.share
        if num_parts > MAX_CHUNKS:
            problem = f"its chunks are multiples of 1/{num_parts} of the buffer only, too small for an MSCCL file."
            raise ScheduleError(f"{self.schedule.name}: {problem}")
        return num_parts

    def spot(self, vertex: int, strand: int, chunk: int) -> tuple[int, Spot]:
        """Return the GPU and the place of a chunk at a vertex."""
        offset, count = (int(column[chunk]) for column in self.layout[strand])
        home = self.homes[vertex]
        if vertex < self.n and self.kind is not Kind.ALL_TO_ALL:
            return home, ("o" if self.kind is Kind.ALL_GATHER else "i", offset)
        if vertex < self.n:
            giver, rest = divmod(offset, self.per_loop)
            taker, inside = divmod(rest, self.per_loop // self.n)
            if giver == home and taker != home:
                return home, ("i", rest)
            if taker == home:
                return home, ("o", giver * (self.per_loop // self.n) + inside)
        gpu, key = self.gpus[home], (vertex, strand, chunk)
        if key not in gpu.scratch:
            gpu.scratch[key] = gpu.num_scratch
            gpu.num_scratch += count
        return home, ("s", gpu.scratch[key])

    def lay_out(self) -> None:
        """Write down every round: its sends first, because they read what was there before it."""
        if self.kind is Kind.ALL_TO_ALL:
            self._keep_own()
        for number, strand in enumerate(self.schedule.strands):
            for moves in strand.steps():
                runs = self._runs(number, moves)
                for sending in (True, False):
                    for run in runs:
                        self._half(run, strand.channel, sending)

    def _runs(self, strand: int, moves: Moves) -> list[_Run]:
        """Return what goes from one place to another in a round: chunks that lie side by side at both ends in one."""
        columns = (moves.src.tolist(), moves.dst.tolist(), moves.op.tolist(), moves.chunk.tolist())
        runs: list[_Run] = []
        for src, dst, op, chunk in sorted(zip(*columns, strict=True)):
            count = int(self.layout[strand][1][chunk])
            (here, first), (there, last) = (self.spot(vertex, strand, chunk) for vertex in (src, dst))
            run = _Run(here, there, op, first, last, count)
            if runs and runs[-1].goes_on(run):
                runs[-1].count += count
            else:
                runs.append(run)
        return runs

    def _keep_own(self) -> None:
        part = self.per_loop // self.n
        for home, gpu in enumerate(self.gpus):
            spots = [("i", home * part), ("o", home * part)]
            gpu.add(
                gpu.block("local", -1, 0), _Step("cpy", spots[0], spots[1], part), *(_spots(s, part) for s in spots)
            )

    def _half(self, run: _Run, channel: int, sending: bool) -> None:
        read, written = _spots(run.first, run.count), _spots(run.last, run.count)
        # The first that is added to a helper's empty place is what the place holds then.
        empty = run.last[0] == "s" and not any(spot in self.gpus[run.there].writer for spot in written)
        reduces = run.op == MoveOp.REDUCE and not empty
        if run.here == run.there:
            if not sending:
                gpu, step = self.gpus[run.here], _Step("re" if reduces else "cpy", run.first, run.last, run.count)
                gpu.add(gpu.block("local", -1, channel), step, read + (written if reduces else []), written)
        elif sending:
            gpu = self.gpus[run.here]
            gpu.add(gpu.block("send", run.there, channel), _Step("s", run.first, run.last, run.count), read, [])
        else:
            gpu = self.gpus[run.there]
            kind, source = ("rrc", run.last) if reduces else ("r", run.first)
            gpu.add(
                gpu.block("recv", run.here, channel),
                _Step(kind, source, run.last, run.count),
                written if reduces else [],
                written,
            )

    def text(self) -> str:
        self.lay_out()
        self._check()
        channels = max((b.channel for gpu in self.gpus for b in gpu.blocks), default=0) + 1
        in_place = self.kind is not Kind.ALL_TO_ALL
        root = f' root="{self.schedule.collective.root}"' if self.kind in (Kind.BROADCAST, Kind.REDUCE) else ""
        head = (
            f'<algo name={quoteattr(self.schedule.name)} proto="{self.protocol}" nchannels="{channels}" '
            f'nchunksperloop="{self.per_loop}" ngpus="{self.n}" coll="{NAMES[self.kind]}" inplace="{int(in_place)}" '
            f'outofplace="{int(not in_place)}" minBytes="0" maxBytes="{MAX_SIZE_BYTES}"{root}>\n'
        )
        return head + "".join(self._gpu_text(k) for k in range(self.n)) + "</algo>\n"

    def _check(self) -> None:
        for number, gpu in enumerate(self.gpus):
            deepest = max((len(block.steps) for block in gpu.blocks), default=0)
            widest = max((step.count for block in gpu.blocks for step in block.steps), default=0)
            for needed, limit, what in (
                (len(gpu.blocks), MAX_BLOCKS, "thread blocks"),
                (deepest, MAX_STEPS, "steps in a thread block"),
                (widest, MAX_COUNT, "chunks in a step"),
                (max((block.channel for block in gpu.blocks), default=0) + 1, MAX_CHANNELS, "channels"),
            ):
                if needed > limit:
                    raise ScheduleError(
                        f"{self.schedule.name}: gpu {number} needs {needed} {what}; the MSCCL runtime allows {limit}.",
                        hint="Use fewer ranks, chunks or channels.",
                    )

    def _gpu_text(self, number: int) -> str:
        gpu, per_rank = self.gpus[number], self.per_loop // self.n if self.kind in OWNED | PAIRED else self.per_loop
        i_chunks = per_rank if self.kind is Kind.ALL_GATHER else self.per_loop
        o_chunks = per_rank if self.kind is Kind.REDUCE_SCATTER else self.per_loop
        lines = [f'  <gpu id="{number}" i_chunks="{i_chunks}" o_chunks="{o_chunks}" s_chunks="{gpu.num_scratch}">\n']
        for k, block in enumerate(gpu.blocks):
            lines.append(f'    <tb id="{k}" send="{block.send}" recv="{block.recv}" chan="{block.channel}">\n')
            lines += [_step_text(s, step) for s, step in enumerate(block.steps)]
            lines.append("    </tb>\n")
        return "".join([*lines, "  </gpu>\n"])


def _spots(spot: Spot, count: int) -> list[Spot]:
    return [(spot[0], spot[1] + k) for k in range(count)]


def _step_text(number: int, step: _Step) -> str:
    return (
        f'      <step s="{number}" type="{step.type}" srcbuf="{step.src[0]}" srcoff="{step.src[1]}" '
        f'dstbuf="{step.dst[0]}" dstoff="{step.dst[1]}" cnt="{step.count}" depid="{step.wait[0]}" '
        f'deps="{step.wait[1]}" hasdep="{int(step.awaited)}"/>\n'
    )
