"""How crowded the processors of a host are: a job that waits for a core is slow, and no link is to blame for it."""

from __future__ import annotations

import os

from syncline.watch.sources.source import SourceTree

CROWDED = 1.5
"""Runnable tasks a core from which times of steps and collectives say more of the host than of the network."""
WAITING = 0.5
"""Share of the time in which some task waited for a core (the kernel's pressure); below, the crowd does no harm."""
SMOOTH_S = 10.0


class HostLoad:
    """Runnable tasks a core, smoothed over ten seconds, and the share of time in which a task waited for one."""

    def __init__(self, root: SourceTree, num_cpus: int | None = None) -> None:
        self._root = root
        self._num_cpus = num_cpus or os.cpu_count() or 1
        self._tasks = 0.0
        self._before: tuple[float, float] | None = None
        self._waiting: float | None = None

    def look(self, now_s: float, interval_s: float) -> str:
        """Return how crowded the host is, in words; empty where it is not."""
        running = self._running()
        if running is None:
            return ""
        weight = min(1.0, interval_s / SMOOTH_S)
        self._tasks += weight * (running - self._tasks)
        self._pressure(now_s)
        a_core = self._tasks / self._num_cpus
        if a_core < CROWDED or (self._waiting is not None and self._waiting < WAITING):
            return ""
        cores = f"{self._num_cpus} core{'s' if self._num_cpus != 1 else ''}"
        return (
            f"this host is crowded ({self._tasks:.0f} runnable tasks on {cores}): times of steps and collectives are "
            "not held against the network while no link is in trouble"
        )

    def _running(self) -> float | None:
        """Return the tasks that run or could; the reader itself is one of them."""
        fields = (self._root.text("proc", "loadavg") or "").split()
        running = fields[3].partition("/")[0] if len(fields) > 3 else ""
        return max(0.0, float(running) - 1.0) if running.isdecimal() else None

    def _pressure(self, now_s: float) -> None:
        """Keep the share of time in which some task waited, where the kernel tells it."""
        for line in (self._root.text("proc/pressure", "cpu") or "").splitlines():
            total = line.rpartition("total=")[2]
            if not line.startswith("some ") or not total.isdecimal():
                continue
            waited_s = int(total) / 1e6
            if self._before is not None and now_s > self._before[0]:
                self._waiting = min(1.0, (waited_s - self._before[1]) / (now_s - self._before[0]))
            self._before = (now_s, waited_s)
