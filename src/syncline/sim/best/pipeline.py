"""What a schedule takes whose buffer is cut in chunks that follow each other: filling it, then its steady pace.

The first chunk goes through all stages alone. Then one comes out whenever the busiest link, or the busiest sender of
messages, is done with one: senders have a window, and wait for no round of others.

    time(c) = sum over stages of max(latency + load / c, posting) + (c - 1) max(busiest / c, posting of a chunk)
"""

from __future__ import annotations

from dataclasses import dataclass

CHUNKS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 192, 256)
"""Numbers of chunks that are tried."""


@dataclass(frozen=True)
class PipelineCosts:
    """Stages as (latency, load, posting), the load of the busiest link, and posting a chunk at the busiest sender."""

    stages: tuple[tuple[float, float, float], ...]
    busiest_s: float
    posting_s: float
    link: int = -1
    """The busiest link."""

    def time_s(self, chunks: int) -> float:
        """Return the time with so many chunks."""
        fill = sum(max(latency + load / chunks, posting) for latency, load, posting in self.stages)
        return fill + (chunks - 1) * max(self.busiest_s / chunks, self.posting_s)

    def best(self) -> tuple[float, int]:
        """Return the least time, to 0.1 %, with as few chunks as have it.

        >>> PipelineCosts(((1.0, 8.0, 0.0), (1.0, 8.0, 0.0)), 8.0, 0.0).best()
        (10.03125, 256)
        """
        times = [(self.time_s(chunks), chunks) for chunks in CHUNKS]
        least = min(times)[0]
        return next(entry for entry in times if entry[0] <= 1.001 * least)
