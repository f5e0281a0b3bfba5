"""Messages on the wire: posted through a torch.distributed group, waited for until a deadline, blamed by name.

The same calls serve every backend: `send` and `recv` of the process group. Where they differ: gloo's wait takes a
time-out but cannot be asked whether it is done; NCCL and MPI can be asked, and their wait knows no time. NCCL wants the
messages of a round in one batch, or two ranks that send to each other wait for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from syncline.errors import DeadlineError, ExecutionError
from syncline.runtime.alive.pace import Pace
from syncline.runtime.execute.lane import Message
from syncline.runtime.group import Group

GRACE_S = 2.0
"""How long a rank that gave up waits for the others to say what they saw: the one that says nothing is the culprit."""

_SLEEP_S = 50e-6


class Deadline:
    """A moment by which a step must be over."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.end_s = time.monotonic() + seconds

    def left(self) -> timedelta:
        """Return the time left, at least a millisecond: gloo reads zero as for ever."""
        return timedelta(seconds=max(self.end_s - time.monotonic(), 0.001))

    def passed(self) -> bool:
        """Tell whether it is too late."""
        return time.monotonic() >= self.end_s


class Post:
    """Posts and waits for messages of one group; a `pace` holds back what is sent."""

    def __init__(self, group: Group, pace: Pace | None = None) -> None:
        self.group = group
        self.pace = pace
        self._asks = group.backend != "gloo"
        self._run = 0

    def next_run(self) -> None:
        """Number the runs, so that a report of one run is not taken for a report of another."""
        self._run += 1

    def post_receive(self, message: Message) -> Any:
        """Begin to receive into the message's wire tensor."""
        return self.group.handle.recv([message.wire], message.process, message.tag if self.group.tagged else 0)

    def post_send(self, message: Message) -> Any:
        """Begin to send the message's wire tensor, or let it wait for its turn."""

        def post() -> Any:
            return self.group.handle.send([message.wire], message.process, message.tag if self.group.tagged else 0)

        return post() if self.pace is None else self.pace.send(post, message.wire.nbytes)

    def post_batch(self, receives: Sequence[Message], sends: Sequence[Message]) -> list[Any]:
        """Begin all messages of a round; returns a handle for each, receives first."""
        if self.group.tagged:
            return [*(self.post_receive(m) for m in receives), *(self.post_send(m) for m in sends)]
        operations = [
            dist.P2POp(call, m.wire, self.group.global_rank(m.process), self.group.handle)
            for call, messages in ((dist.irecv, receives), (dist.isend, sends))
            for m in messages
        ]
        works = list(dist.batch_isend_irecv(operations)) if operations else []
        # A backend that coalesces gives one handle for all.
        return works if len(works) == len(operations) else [works[-1]] * len(operations)

    def wait(self, work: Any, message: Message, deadline: Deadline, where: Callable[[], str]) -> None:
        """Wait for one message, or say who did not answer."""
        try:
            if self._asks:
                self._poll(work, deadline)
                work.wait()
            else:
                work.wait(deadline.left())
        except (RuntimeError, TimeoutError) as error:
            raise self.blame(message.process, deadline, where(), error) from None

    def _poll(self, work: Any, deadline: Deadline) -> None:
        while not work.is_completed():
            if deadline.passed():
                raise TimeoutError(f"timed out after {deadline.seconds:g} s")
            time.sleep(_SLEEP_S)

    def blame(self, process: int, deadline: Deadline, where: str, error: Exception) -> ExecutionError:
        """Return the error that names this rank, the one it waited for, and whoever stayed silent."""
        text = str(error)
        # gloo's time-out closes all its connections, so the neighbours see theirs closed by a peer that is well.
        late = deadline.passed() or "imed out" in text
        heard = self._hear(f"{process}")
        if late:
            what = f"rank {self.group.rank} got no answer from rank {process} in {deadline.seconds:g} s."
            return DeadlineError(what, where=where, detail=_verdict(heard, self.group.rank), hint=_advice(heard))
        what = f"rank {self.group.rank} lost its connection to rank {process}."
        detail = _verdict(heard, self.group.rank) or text.split("] ", 1)[-1].splitlines()[0][:200]
        return ExecutionError(what, where=where, detail=detail, hint=_advice(heard))

    def _hear(self, accused: str) -> dict[int, str]:
        """Report whom this rank waits for, and return each rank's report; "": that rank is silent."""
        store = self.group.store()
        if store is None:
            return {}
        key = f"syncline/waits/{self._run}/"
        heard = {}
        try:
            store.set(f"{key}{self.group.rank}", accused)
            end_s = time.monotonic() + GRACE_S
            for rank in range(self.group.size):
                while not store.check([f"{key}{rank}"]) and time.monotonic() < end_s:
                    time.sleep(0.02)
                heard[rank] = store.get(f"{key}{rank}").decode() if store.check([f"{key}{rank}"]) else ""
            if self.group.rank == 0:
                time.sleep(GRACE_S / 2)  # the store often lives in this process, and the others still read it
        except RuntimeError:
            return {rank: accused for rank, accused in heard.items() if accused}  # the store's own host is gone
        return heard


def _verdict(heard: dict[int, str], rank: int) -> str:
    silent = [str(r) for r, accused in heard.items() if not accused]
    waiting = [f"rank {r} waits for rank {accused}" for r, accused in heard.items() if accused and r != rank]
    parts = [f"Silent: rank {', '.join(silent)}." if silent else "", f"{'; '.join(waiting[:8])}." if waiting else ""]
    return " ".join(part for part in parts if part)


def _advice(heard: dict[int, str]) -> str:
    silent = [str(rank) for rank, accused in heard.items() if not accused]
    if silent:
        return f"Look at rank {', '.join(silent)} first: it stopped, died, or computes where the others communicate."
    return "If all ranks are well, the path between them is not: check the link, or allow more time."
