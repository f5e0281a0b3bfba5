"""Read MSCCL XML that others wrote into a `Schedule`, or refuse it with the reason.

The thread blocks are run to their end (`liveness`): a deadlock is refused with GPU, thread block and step. Steps that
touch the same data in no fixed order are refused too. What remains has one meaning, which becomes moves in rounds:
data that waits in a scratch buffer, in an output apart from the input or on its way lives on a helper vertex at home on
the GPU. Sends are taken as buffered, as the runtime's connections are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict

from syncline.errors import NotProvedError, ScheduleError
from syncline.schedule.formats.msccl_buffers import Buffers, Cell
from syncline.schedule.formats.msccl_file import RECEIVES, SENDS, Algo, BlockStep, ThreadBlock, parse
from syncline.schedule.formats.msccl_moves import MAX_MOVES, Emitter
from syncline.schedule.proof.liveness import Clocks, StepOrder, ThreadStep, Where, run
from syncline.schedule.schedule import Schedule

Access = tuple[str, Cell]
"""("r" read, "w" written, "rw" both; cell)."""


def read_msccl(text: str | bytes, name: str = "algorithm") -> Schedule:
    """Return the schedule an MSCCL XML file describes; `verify` then proves or refuses it."""
    algo = parse(text, name)
    reading = _Reading(algo, Buffers.of(algo, name), name)
    try:
        return reading.schedule()
    except NotProvedError as error:
        raise NotProvedError(error.message, where=name, detail=error.detail, hint=error.hint) from None


class _Reading:
    """One algorithm on its way to a schedule."""

    def __init__(self, algo: Algo, buffers: Buffers, name: str) -> None:
        self.algo, self.buffers, self.name = algo, buffers, name
        self.blocks = [
            (gpu.id, block) for _, gpu in sorted(algo.gpus.items()) for _, block in sorted(gpu.blocks.items())
        ]
        self.thread = {(gpu, block.id): k for k, (gpu, block) in enumerate(self.blocks)}
        if sum(step.count for _, block in self.blocks for step in block.steps) > MAX_MOVES:
            raise ScheduleError(f"the steps move more than {MAX_MOVES:,} chunks.", where=name)
        self._check_connections()
        self.threads = [[self._task(gpu, block, k) for k in range(len(block.steps))] for gpu, block in self.blocks]

    def _check_connections(self) -> None:
        for way in ("send", "recv"):
            seen: dict[tuple[int, int, int], int] = {}
            for gpu, block in self.blocks:
                peer = getattr(block, way)
                key = (gpu, peer, block.channel)
                if peer >= 0 and key in seen:
                    raise ScheduleError(f"thread blocks {seen[key]} and {block.id} of gpu {gpu} share the connection "
                                        f"{way} {peer} on channel {block.channel}.", where=self.name)  # fmt: skip
                seen[key] = block.id

    def _task(self, gpu: int, block: ThreadBlock, number: int) -> ThreadStep:
        step = block.steps[number]
        waits: tuple[Where, ...] = ()
        if step.wait is not None:
            key = (gpu, step.wait[0])
            if key not in self.thread or not 0 <= step.wait[1] < len(self.blocks[self.thread[key]][1].steps):
                raise ScheduleError(f"gpu {gpu} thread block {block.id} step {number} waits for step {step.wait[1]} of "
                                    f"thread block {step.wait[0]}, which does not exist.",
                                    where=f"{self.name} line {step.line}")  # fmt: skip
            waits = ((self.thread[key], step.wait[1]),)
        return ThreadStep(
            f"gpu {gpu} thread block {block.id} step {number} ({step.type})",
            waits,
            f"gpu {block.recv} to gpu {gpu} on channel {block.channel}" if step.type in RECEIVES else None,
            f"gpu {gpu} to gpu {block.send} on channel {block.channel}" if step.type in SENDS else None,
        )

    def accesses(self, at: Where) -> list[Access]:
        """Return what a step reads and writes."""
        gpu, block = self.blocks[at[0]]
        step = block.steps[at[1]]
        out: list[Access] = []
        if step.type in ("s", "rrs", "rrc", "rrcs", "cpy", "re"):
            out += [("r", cell) for cell in self.cells(gpu, step.src, step)]
        if step.type in ("r", "rcs", "rrc", "rrcs", "cpy"):
            out += [("w", cell) for cell in self.cells(gpu, step.dst, step)]
        if step.type == "re":
            out += [("rw", cell) for cell in self.cells(gpu, step.dst, step)]
        return out

    def cells(self, gpu: int, place: tuple[str, int], step: BlockStep) -> list[Cell]:
        """Return the cells of `count` chunks from a place on."""
        buffer, offset = place
        if offset < 0 or offset + step.count > self.buffers.limit(gpu, buffer):
            raise ScheduleError(f"chunks {offset} to {offset + step.count - 1} are outside the "
                                f"{self.buffers.limit(gpu, buffer)} of buffer {buffer} on gpu {gpu}.",
                                where=f"{self.name} line {step.line}")  # fmt: skip
        return [self.buffers.cell(gpu, buffer, offset + k) for k in range(step.count)]

    def check_races(self, order: StepOrder) -> None:
        """Refuse two steps that touch a cell, one of them writing, in no fixed order."""
        clocks = Clocks(self.threads, order)
        written: dict[Cell, Where] = {}
        readers: dict[Cell, list[Where]] = defaultdict(list)
        for at in order.steps:
            for how, cell in self.accesses(at):
                earlier = [written[cell]] if cell in written else []
                earlier += readers[cell] if how != "r" else []
                for other in earlier:
                    if other != at and not clocks.before(other, at):
                        pair = f"{self.label(other)} and {self.label(at)}"
                        raise NotProvedError(f"{pair} touch chunk {cell[2]} of buffer {cell[1]} in no fixed order.",
                                             hint="Make one wait for the other (depid, deps).")  # fmt: skip
                if how == "r":
                    readers[cell].append(at)
                else:
                    written[cell] = at
                    readers[cell] = []

    def label(self, at: Where) -> str:
        return self.threads[at[0]][at[1]].label

    def schedule(self) -> Schedule:
        order = run(self.threads)
        self.check_races(order)
        emitter = Emitter(self.buffers)
        mail: dict[Where, list[int]] = {}
        later = self._later(order)
        for number, at in enumerate(order.steps):
            gpu, block = self.blocks[at[0]]
            step = block.steps[at[1]]
            got = mail.pop(order.sender[at], None) if at in order.sender else None
            if got is not None and len(got) != step.count:
                raise NotProvedError(f"{self.label(at)} receives {step.count} chunks where {len(got)} are sent.")
            try:
                sent = self._do(emitter, at, gpu, step, got or [], number, later)
            except NotProvedError as error:
                raise NotProvedError(f"{self.label(at)} {error.message}") from None
            if step.type in SENDS:
                mail[at] = emitter.post(sent, block.send, block.channel, at[0])
        return emitter.finish(self.algo.name, self.name)

    def _later(self, order: StepOrder) -> dict[Cell, list[tuple[int, str]]]:
        """Return for each cell when it is touched, and how."""
        out: dict[Cell, list[tuple[int, str]]] = defaultdict(list)
        for number, at in enumerate(order.steps):
            for how, cell in self.accesses(at):
                out[cell].append((number, how))
        return out

    def _do(
        self,
        emitter: Emitter,
        at: Where,
        gpu: int,
        step: BlockStep,
        got: list[int],
        number: int,
        later: dict[Cell, list[tuple[int, str]]],
    ) -> list[tuple[int, int]]:
        """Do one step on the emitter; return what it sends, as (vertex, chunk)."""
        kind = step.type
        src = self.cells(gpu, step.src, step) if kind in ("s", "rrs", "rrc", "rrcs", "cpy", "re") else []
        dst = self.cells(gpu, step.dst, step) if kind in ("r", "rcs", "rrc", "rrcs", "cpy", "re") else []
        if kind == "s":
            return [emitter.held(cell) for cell in src]
        if kind in ("r", "rcs"):
            return [emitter.receive(message, cell) for message, cell in zip(got, dst, strict=True)]
        if kind == "rrs":
            return [
                emitter.pass_on(message, cell, gpu, (*at, k), self._dies(cell, number, later))
                for k, (message, cell) in enumerate(zip(got, src, strict=True))
            ]
        if kind in ("rrc", "rrcs"):
            triples = zip(got, src, dst, strict=True)
            return [emitter.receive_sum(message, one, two) for message, one, two in triples]
        for one, two in zip(src, dst, strict=True):
            if kind == "cpy":
                emitter.copy(one, two)
            elif kind == "re":
                emitter.add(one, two)
        return []

    def _dies(self, cell: Cell, number: int, later: dict[Cell, list[tuple[int, str]]]) -> bool:
        """Whether the next thing that happens to a cell is that it is overwritten."""
        uses = later[cell]
        at = bisect_right(uses, (number, "~"))
        return at < len(uses) and uses[at][1] == "w"
