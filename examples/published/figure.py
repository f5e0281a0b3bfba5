"""What every script here makes: a published figure beside ours."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Point:
    """One figure: what was varied, the published value (or bound), and ours."""

    at: str
    published: float
    ours: float
    bound: str = ""
    """"at most" or "at least" where the source gives a bound; otherwise the two should be equal."""

    @property
    def difference(self) -> float:
        """Ours over the published value, less one."""
        return self.ours / self.published - 1

    @property
    def holds(self) -> bool:
        """Whether a bound is kept; for values, whether they lie within a quarter."""
        if self.bound == "at most":
            return self.ours <= self.published
        if self.bound == "at least":
            return self.ours >= self.published
        return abs(self.difference) <= 0.25


@dataclass(frozen=True)
class Figure:
    """A result of a paper, reproduced."""

    title: str
    source: str
    unit: str
    points: tuple[Point, ...]
    remark: str = ""
    read: str = ""
    """Where the published value was read, and when; empty: it is from memory, and the output says so."""

    @property
    def origin(self) -> str:
        """Say whether the published value was read in its source."""
        return f"read: {self.read}" if self.read else "the published value is from memory, not read again"

    def lines(self) -> list[str]:
        """Return the figure as text."""
        rows = [
            f"  {p.at:<34} {p.bound:>8} {p.published:>9.4g}   ours {p.ours:>9.4g}   {p.difference:+.1%}"
            for p in self.points
        ]
        return [
            f"{self.title} [{self.unit}]",
            f"  {self.source}",
            f"  {self.origin}",
            *rows,
            *([f"  {self.remark}"] if self.remark else []),
        ]
