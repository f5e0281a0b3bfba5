"""Which chunk of the collective every cell of a GPU's buffers starts and must end as."""

from __future__ import annotations

from dataclasses import dataclass

from syncline.errors import ScheduleError
from syncline.schedule.collective import ALL, Collective, Kind
from syncline.schedule.formats.msccl_file import Algo

Cell = tuple[int, str, int]
"""(gpu, buffer, offset)."""

COLLECTIVES = {
    "allreduce": Kind.ALL_REDUCE, "reducescatter": Kind.REDUCE_SCATTER, "reduce_scatter": Kind.REDUCE_SCATTER,
    "allgather": Kind.ALL_GATHER, "alltoall": Kind.ALL_TO_ALL, "broadcast": Kind.BROADCAST, "reduce": Kind.REDUCE,
}  # fmt: skip
MAX_CELLS = 1 << 20
"""(gpu, chunk) pairs followed one by one."""

ROOTED = (Kind.BROADCAST, Kind.REDUCE)


@dataclass(frozen=True)
class Buffers:
    """The collective an algorithm performs, and how its chunks lie in buffers."""

    algo: Algo
    collective: Collective
    num_chunks: int

    @classmethod
    def of(cls, algo: Algo, name: str) -> Buffers:
        """Read off the collective and its chunks."""
        kind = COLLECTIVES.get(algo.coll)
        if kind is None:
            raise ScheduleError(f'the collective "{algo.coll[:40]}" cannot be read.', where=name,
                                hint=f"Known: {', '.join(COLLECTIVES)}.")  # fmt: skip
        goal = Collective(kind, algo.num_gpus, root=algo.root if kind in ROOTED else 0)
        n = algo.num_gpus
        per_loop = algo.chunks_per_loop
        if kind not in (Kind.ALL_REDUCE, *ROOTED) and per_loop % n:
            raise ScheduleError(f"nchunksperloop={per_loop} is not a multiple of {n} gpus.", where=name)
        num_chunks = per_loop * n if kind is Kind.ALL_TO_ALL else per_loop
        if num_chunks * n > MAX_CELLS:
            raise ScheduleError(f"{num_chunks:,} chunks on {n:,} gpus are too many to follow.", where=name)
        return cls(algo, goal, num_chunks)

    @property
    def per_rank(self) -> int:
        """Chunks of one rank's block."""
        return self.algo.chunks_per_loop // self.algo.num_gpus

    def cell(self, gpu: int, buffer: str, offset: int) -> Cell:
        """Return where a cell really is: in place, input and output are the same memory."""
        if self.algo.in_place and buffer != "s":
            kind = self.collective.kind
            if kind is Kind.ALL_GATHER:
                return (gpu, "o", offset + (gpu * self.per_rank if buffer == "i" else 0))
            if kind is Kind.REDUCE_SCATTER:
                return (gpu, "i", offset + (gpu * self.per_rank if buffer == "o" else 0))
            return (gpu, "i", offset)
        return (gpu, buffer, offset)

    def limit(self, gpu: int, buffer: str) -> int:
        """Return how many chunks a buffer has."""
        chunks, per_loop = self.algo.gpus[gpu].chunks, self.algo.chunks_per_loop
        if buffer == "s":
            return chunks["s"]
        if self.algo.in_place:
            return max(chunks[buffer], per_loop if self.cell(gpu, buffer, 0)[1] == buffer else self.per_rank)
        return chunks[buffer]

    def inputs(self) -> dict[Cell, int]:
        """Return the cells that hold data at the start, with the chunk each is."""
        out: dict[Cell, int] = {}
        givers = self.collective.givers(self.num_chunks).tolist()
        for gpu in range(self.algo.num_gpus):
            for chunk, giver in enumerate(givers):
                if giver in (ALL, gpu):
                    out[self.cell(gpu, "i", self._offset_in(gpu, chunk))] = chunk
        return out

    def outputs(self) -> dict[Cell, int]:
        """Return the cells that must hold data at the end, with the chunk each must be."""
        out: dict[Cell, int] = {}
        takers = self.collective.takers(self.num_chunks).tolist()
        for gpu in range(self.algo.num_gpus):
            for chunk, taker in enumerate(takers):
                if taker in (ALL, gpu):
                    out[self.cell(gpu, "o", self._offset_out(gpu, chunk))] = chunk
        return out

    def _offset_in(self, gpu: int, chunk: int) -> int:
        if self.collective.kind is Kind.ALL_GATHER:
            return chunk - gpu * self.per_rank
        if self.collective.kind is Kind.ALL_TO_ALL:
            return chunk - gpu * self.algo.chunks_per_loop
        return chunk

    def _offset_out(self, gpu: int, chunk: int) -> int:
        if self.collective.kind is Kind.REDUCE_SCATTER:
            return chunk - gpu * self.per_rank
        if self.collective.kind is Kind.ALL_TO_ALL:
            giver, rest = divmod(chunk, self.algo.chunks_per_loop)
            return giver * self.per_rank + rest % self.per_rank
        return chunk
