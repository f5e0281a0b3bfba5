"""Which of the jobs that report at one socket is followed: the first to come, until its processes are gone.

Ranks of two jobs have the same numbers, and would make one job that never was. Who reports is the kernel's word (user
and process); what the job is called is the job's own.
"""

from __future__ import annotations

import os
import pwd
import select
from typing import NamedTuple

from syncline.describe.names import few

TOLD_S = 10.0
"""How long a job that is left out is reported."""
SILENT_S = 60.0
"""Where a process cannot be watched (another namespace, too many), a job that is silent for so long is over."""
MAX_JOBS = 64
MAX_PROCESSES = 256
MAX_NAME = 80


class Reporter(NamedTuple):
    """Who sent a span; `pid` 0 where the process cannot be seen from here."""

    uid: int
    pid: int
    job: str

    @property
    def text(self) -> str:
        try:
            user = pwd.getpwuid(self.uid).pw_name
        except KeyError:
            user = f"user {self.uid}"
        return f"job {self.job} of {user}" if self.job else f"a job of {user}"


def job_name(value: object) -> str:
    """Return what a span says its job is called; "" where it says nothing that can be shown."""
    return "".join(filter(str.isprintable, value[:MAX_NAME])) if isinstance(value, str) else ""


class OneJob:
    """Takes the spans of one job: of the one asked for, else of the first that reports, until it is gone."""

    def __init__(self, wanted: str = "") -> None:
        self._wanted = wanted
        self._now: Reporter | None = None
        self._processes: dict[int, int] = {}
        """A descriptor of every process of the followed job: a number may be given again, this not."""
        self._is_hidden = False
        self._heard_s = float("-inf")
        self._others: dict[Reporter, float] = {}

    def takes(self, who: Reporter, now_s: float) -> bool:
        """Tell whether a span belongs to the job that is followed."""
        if self._wanted and who.job != self._wanted:
            return self._leave_out(who, now_s)
        if not self._is_followed(who):
            if self._now is not None and not self._is_over(now_s):
                return self._leave_out(who, now_s)
            self.close()
            self._others = {other: at_s for other, at_s in self._others.items() if not _same(other, who)}
        self._now, self._heard_s = who, now_s
        self._remember(who.pid)
        return True

    def problem(self, now_s: float) -> str:
        """Return which jobs are left out, and what to do about it; "" where none is."""
        self._others = {who: at_s for who, at_s in self._others.items() if now_s - at_s < TOLD_S}
        texts = sorted({who.text for who in self._others})
        if not texts:
            return ""
        shown = f"job {self._wanted}" if self._wanted else self._now.text if self._now else "no job"
        others = f"{few(texts, 2)} reports here too and is left out"
        return f"shows {shown}; {others}: choose with --spans-job, or give it an agent"

    def close(self) -> None:
        """Let go of the followed job's processes."""
        for descriptor in self._processes.values():
            os.close(descriptor)
        self._processes.clear()
        self._is_hidden = False

    def _is_followed(self, who: Reporter) -> bool:
        # A process that goes on under another name (a notebook) is still the one that is watched.
        return self._now is not None and (_same(self._now, who) or who.pid in self._processes)

    def _is_over(self, now_s: float) -> bool:
        """Tell whether every process of the followed job has ended."""
        self._forget_ended()
        return not self._processes and (not self._is_hidden or now_s - self._heard_s > SILENT_S)

    def _forget_ended(self) -> None:
        waiting = select.poll()
        by_descriptor = {descriptor: pid for pid, descriptor in self._processes.items()}
        for descriptor in by_descriptor:
            waiting.register(descriptor, select.POLLIN)
        for descriptor, _ in waiting.poll(0) if by_descriptor else ():
            os.close(self._processes.pop(by_descriptor[descriptor]))

    def _remember(self, pid: int) -> None:
        if pid in self._processes:
            return
        if len(self._processes) >= MAX_PROCESSES:
            self._forget_ended()
        if pid == 0 or len(self._processes) >= MAX_PROCESSES:
            self._is_hidden = True
            return
        try:
            self._processes[pid] = os.pidfd_open(pid)
        except ProcessLookupError:
            pass  # it has ended already
        except OSError:
            self._is_hidden = True

    def _leave_out(self, who: Reporter, now_s: float) -> bool:
        who = who._replace(pid=0)
        if who in self._others or len(self._others) < MAX_JOBS:
            self._others[who] = now_s
        return False


def _same(one: Reporter, other: Reporter) -> bool:
    return (one.uid, one.job) == (other.uid, other.job)
