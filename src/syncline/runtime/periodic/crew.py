"""Which ranks take part in an elastic run: agreed in a store, one formation after another.

    store = torch.distributed.TCPStore(host, port, is_master=False, wait_for_workers=False)
    crew = syncline.torch.Crew(store, rank=3, num_ranks=4)
    optimizer = syncline.torch.DiLoCo(optimizer, model, every=50, crew=crew)

A formation is a number and a list of ranks, written once by compare-and-set: every rank reads the same list, and the
run cannot split in two. After a loss the ranks that report in time are the next formation. A rank that reports later,
back from a stop or as a new process with the same number, takes a ticket, and all members admit it at the same step.

The store is a single point of failure: run it in a process of its own, on a host that stays.
"""

from __future__ import annotations

import datetime
import json
import os
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch.distributed import TCPStore, distributed_c10d  # type: ignore[attr-defined]

from syncline.errors import AgreementError, CrewFinishedError, SynchronizationError
from syncline.runtime.alive.agreement import difference

POLL_S = 0.05
WAIT_S = 3600.0


@dataclass(frozen=True)
class Formation:
    """One line-up of the crew: its number, the ranks in it, and those among them that were not in the one before."""

    number: int
    members: tuple[int, ...]
    new: frozenset[int]

    def line(self) -> str:
        """Return it on one line."""
        let_in = f"; let in: {', '.join(map(str, sorted(self.new)))}" if self.new else ""
        return f"formation {self.number}: ranks {', '.join(map(str, self.members))}{let_in}"


@dataclass(frozen=True)
class Ticket:
    """A process that waits to be let in: its number in the queue, and its rank."""

    number: int
    rank: int


class Crew:
    """This process's place in the crew.

    store       where ranks meet; every rank must be able to reach it
    rank        this process's number, from 0 to num_ranks - 1; a replacement takes the number of the lost process
    num_ranks   how many ranks the crew starts with, which is also its maximum
    name        distinguishes this run from others in the same store
    patience_s  how long a new formation waits for ranks it has not heard from; longer than any step
    wait_s      how long to wait for the others at the start, and for admission later
    """

    def __init__(
        self,
        store: Any,
        rank: int,
        num_ranks: int,
        name: str = "crew",
        patience_s: float = 15.0,
        wait_s: float = WAIT_S,
    ) -> None:
        if not 0 <= rank < num_ranks:
            raise SynchronizationError(f"rank {rank} is not in a crew of {num_ranks}.", hint="Ranks count from 0.")
        self.rank, self.num_ranks, self.name = rank, num_ranks, name
        self.store = store
        self.formation = Formation(-1, (), frozenset())
        self.history: list[str] = []
        """A line for each formation this process was in."""
        self._patience_s, self._wait_s = patience_s, wait_s
        self._process = uuid.uuid4().hex
        self._keys: Any = distributed_c10d.PrefixStore(f"syncline/crew/{name}", store)
        self._next_ticket = 1

    @classmethod
    def from_env(cls, **options: Any) -> Crew:
        """Return this process's place as its environment tells it.

        SYNCLINE_CREW is HOST:PORT of the store; SYNCLINE_CREW_RANK and SYNCLINE_CREW_RANKS are this rank (of FSDP2:
        this replica) and how many there are. Left out they are the task of a Slurm job array, or of a Slurm job.
        """
        host, _, port = os.environ.get("SYNCLINE_CREW", "").rpartition(":")
        rank = _first(("SYNCLINE_CREW_RANK", "SLURM_ARRAY_TASK_ID", "SLURM_PROCID"))
        num_ranks = _first(("SYNCLINE_CREW_RANKS", "SLURM_ARRAY_TASK_COUNT", "SLURM_NTASKS"))
        if not host or not port.isdigit() or rank is None or num_ranks is None:
            raise SynchronizationError(
                "the environment does not name the crew's store and this member.",
                hint="Set SYNCLINE_CREW=HOST:PORT, SYNCLINE_CREW_RANK and SYNCLINE_CREW_RANKS.",
            )
        if "SYNCLINE_CREW_RANK" not in os.environ and "SLURM_ARRAY_TASK_ID" in os.environ:
            rank -= _first(("SLURM_ARRAY_TASK_MIN",)) or 0
        patience = datetime.timedelta(seconds=float(options.get("wait_s", WAIT_S)))
        store = TCPStore(host.strip("[]"), int(port), is_master=False, timeout=patience, wait_for_workers=False)
        return cls(store, rank, num_ranks, **options)

    # What a method asks

    def enter(self, meaning: Mapping[str, Any]) -> Formation:
        """Start the crew with all others, or be let in where it has started; raise where this rank means another run.

        A rank that is let in waits for the next synchronisation of the others.
        """
        self._compare(json.loads(json.dumps(dict(meaning))))
        started = self._read("formed/0") is not None
        return (None if started else self._gather(0, range(self.num_ranks), self._wait_s)) or self._queue()

    def form_anew(self, lost: Iterable[int]) -> Formation:
        """Go on after a loss with those who come; where they have gone on without this rank, be let in again."""
        number, members = self.formation.number + 1, self.formation.members
        return self._gather(number, members, self._patience_s, lost) or self._queue()

    def waiting(self, step: int | str) -> list[Ticket]:
        """Return who is to be let in at this step: the same answer to every member, whoever asks first."""
        key = f"door/{self.formation.number}/{step}"
        decided = self._decide(key, {"tickets": self._open_tickets()})
        return [Ticket(*row) for row in decided["tickets"]]

    def let_in(self, tickets: Iterable[Ticket]) -> Formation:
        """Form anew with those who wait; every member calls it with the same tickets."""
        number, wanted = self.formation.number + 1, set(self.formation.members)
        for ticket in tickets:
            self._write(f"answer/{ticket.number}", number)
            wanted.add(ticket.rank)
        return self._gather(number, wanted, self._patience_s) or self._queue()

    def leave(self) -> None:
        """Say that this rank has come to its end: who waits to be let in need not wait for it."""
        self._write(f"left/{self._process}", True)

    # How it is decided

    def _gather(
        self, number: int, wanted: Iterable[int], patience_s: float, lost: Iterable[int] = ()
    ) -> Formation | None:
        """Return the formation of this number: all who are wanted, or who came in time; None: not with this rank."""
        self._write(f"here/{number}/{self.rank}", {"process": self._process, "lost": sorted(lost)})
        end_s = time.monotonic() + patience_s
        while (found := self._read(f"formed/{number}")) is None:
            here = {rank: row for rank in range(self.num_ranks) if (row := self._read(f"here/{number}/{rank}"))}
            gone = {rank for row in here.values() for rank in row["lost"]}
            missing, is_late = set(wanted) - set(here) - gone, time.monotonic() > end_s
            missing -= self._gone_by_themselves(missing, number - 1)
            if number == 0:
                self._check_start(missing, is_late)
            if not missing or is_late:
                rows = [[rank, row["process"]] for rank, row in sorted(here.items())]
                self._decide(f"formed/{number}", {"rows": rows})
            else:
                time.sleep(POLL_S)
        if [self.rank, self._process] not in found["rows"]:
            return None
        before = self._read(f"formed/{number - 1}") or found
        new = frozenset(row[0] for row in found["rows"] if row not in before["rows"])
        self.formation = Formation(number, tuple(row[0] for row in found["rows"]), new)
        self.history.append(self.formation.line())
        return self.formation

    def _gone_by_themselves(self, missing: set[int], number: int) -> set[int]:
        """Return which of the missing ranks announced that they leave."""
        rows = (self._read(f"formed/{number}") or {"rows": []})["rows"] if missing else []
        return {rank for rank, process in rows if rank in missing and self._read(f"left/{process}")}

    def _queue(self) -> Formation:
        """Take a ticket and wait until the members let this rank in; again where that did not come about."""
        end_s = time.monotonic() + self._wait_s
        while True:
            number = int(self._call(lambda: self._keys.add("tickets", 1)))
            self._write(f"ticket/{number}", self.rank)
            while (answer := self._read(f"answer/{number}")) is None:
                self._check_wait(time.monotonic() > end_s)
                time.sleep(POLL_S)
            members = {row[0] for row in self._read(f"formed/{answer - 1}")["rows"]}
            found = self._gather(int(answer), {*members, self.rank}, self._patience_s)
            if found is not None:
                return found

    def _open_tickets(self) -> list[list[int]]:
        """Return number and rank of the tickets that have no answer; those of a rank not yet known to be lost wait."""
        last = int(self._call(lambda: self._keys.add("tickets", 0)))
        unanswered = [n for n in range(self._next_ticket, last + 1) if self._read(f"answer/{n}") is None]
        self._next_ticket = min(unanswered, default=last + 1)
        rows = [[n, self._read(f"ticket/{n}")] for n in unanswered]
        return [row for row in rows if row[1] is not None and row[1] not in self.formation.members]

    def _check_start(self, missing: set[int], is_late: bool) -> None:
        broken = self._read("broken")
        if broken is not None:
            raise AgreementError(str(broken))
        if is_late:
            ranks = ", ".join(map(str, sorted(missing)))
            raise SynchronizationError(
                f"the crew cannot start: rank {ranks} has not come within {self._wait_s:g} s.",
                hint="Start every rank, with the same store, name and num_ranks.",
            )

    def _check_wait(self, is_late: bool) -> None:
        number = max(self.formation.number, 0)
        while self._read(f"formed/{number + 1}") is not None:
            number += 1
        rows = (self._read(f"formed/{number}") or {"rows": []})["rows"]
        if rows and all(self._read(f"left/{process}") for _, process in rows):
            raise CrewFinishedError(
                "the crew finished without this rank.",
                hint="Nothing is left to do. Catch syncline.errors.CrewFinishedError to end with status 0.",
            )
        if self.formation.members and any(rank == self.rank and process != self._process for rank, process in rows):
            raise SynchronizationError(
                f"another process has taken the place of rank {self.rank}.", hint="Start one process for each rank."
            )
        if is_late:
            raise SynchronizationError(f"rank {self.rank} was not let in within {self._wait_s:g} s.")

    def _compare(self, meaning: dict[str, object]) -> None:
        """Raise where this rank means something else than the first that came; before the start, on every rank."""
        first = self._decide("meaning", {"rank": self.rank, "meaning": meaning})
        error = difference(int(first["rank"]), first["meaning"], self.rank, meaning)
        if error is not None:
            if self._read("formed/0") is None:
                self._write("broken", error.message)
            raise error

    # The store

    def _decide(self, key: str, value: Any) -> Any:
        """Write a value unless there is one, and return the one that stands."""
        return json.loads(self._call(lambda: self._keys.compare_set(key, "", json.dumps(value))))

    def _write(self, key: str, value: Any) -> None:
        self._call(lambda: self._keys.set(key, json.dumps(value)))

    def _read(self, key: str) -> Any:
        """Return what stands under a key, or None; never wait for it."""
        return self._call(lambda: json.loads(self._keys.get(key)) if self._keys.check([key]) else None)

    def _call(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except RuntimeError as error:
            raise SynchronizationError(
                "the crew's store does not answer.",
                hint="Its host is lost or cut off; run the store in a separate process, on a host that stays up.",
                detail=str(error).split("\n")[0],
            ) from error


def _first(names: Iterable[str]) -> int | None:
    """Return the first of these variables that holds a number."""
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdigit()), None)
