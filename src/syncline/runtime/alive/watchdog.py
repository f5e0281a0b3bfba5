"""The watchdog of a handle: a thread that sends and hears heartbeats, names who is late, and ends waits for the lost.

It is independent of the training thread and of the connections that carry gradients. A rank that is silent or
stands still is named in the log ("syncline.watchdog") and waited for. When one is dead, or has been silent for longer
than patience lasts, everything that waits is given an error that names rank and host; the others are notified, so all
raise the same.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import multiprocessing.util
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median
from typing import Protocol

from syncline.errors import LostRankError, NonFiniteError, SynchronizationError
from syncline.runtime.alive.heartbeat import (
    BUSY,
    CLOSED,
    COMPUTING,
    LEFT,
    WAITING,
    Beat,
    neighbours,
    read_beat,
)
from syncline.runtime.alive.last_words import at_exit_of, first_line, from_transport, in_flight, naming_hook, where
from syncline.runtime.alive.roll import Roll, meet
from syncline.runtime.alive.verdict import (
    SILENCE_SHARE,
    BeatRecord,
    RankVerdict,
    judge,
)
from syncline.runtime.sync.step import Step
from syncline.runtime.wire.connections import go_on, rest
from syncline.runtime.wire.team import Team

BEATS = 20
"""Beats in `watch_s`."""
MISSED_BEATS, MISSED_S = 4, 6.0
"""Beats of a rank that must be missing before connections rest, and the longest time: in 14 s TCP has given some up."""
OWN_WORDS_BEATS = 6
"""Beats for which a failure that another rank reports may turn up here as well: on a busy machine seconds."""
GOODBYES = 3
RECENT = 8
VAGUE_LOOKS = 4
"""Looks at the beats of the others before a failure that may be theirs is reported as this rank's own."""
STILL_TIMES = 10.0
"""How many times `watch_s` may pass until those looks are made: this process may stand still itself."""

log = logging.getLogger("syncline.watchdog")


class WatchedHandle(Protocol):
    """What a watchdog looks at and can stop."""

    @property
    def steps(self) -> Sequence[Step]: ...

    def break_off(self, failure: BaseException) -> None: ...


class Watchdog:
    """Watches the ranks of one team until it is closed."""

    def __init__(self, watched: WatchedHandle, roll: Roll, watch_s: float, patience_s: float = 0.0) -> None:
        self.roll = roll
        self.watch_s = watch_s
        self.patience_s = patience_s
        self.verdict: RankVerdict | None = None
        self.waits_for: RankVerdict | None = None
        """Who is silent or stands still just now, and is waited for."""
        self._warned_s = 0.0
        self._looks = 0
        # Whoever forgets a handle must not have it kept by its watchdog.
        self._watched = weakref.ref(watched)
        self._heard = {rank: Beat(rank) for rank in neighbours(roll.rank, len(roll.members))}
        now = time.monotonic()
        self._heard_s = dict.fromkeys(self._heard, now)
        self._mark, self._moved_s = -1, now
        self._busy = 0
        self._state, self._cause, self._lost = "", "", -1
        self._found, self._stop = threading.Event(), threading.Event()
        self._silent: set[int] = set()
        """Who has not been heard for some beats: connections rest until one of them is heard again."""
        self._trainer = threading.get_ident()
        self._thread = threading.Thread(target=self._run, name="syncline-watchdog", daemon=True)
        self._thread.start()
        # Processes of multiprocessing do not come to atexit; both may be called, and the second does nothing.
        self._finalizer = multiprocessing.util.Finalize(self, at_exit_of(self), exitpriority=100)
        atexit.register(self._at_exit)
        self._hook_before = sys.excepthook
        sys.excepthook = self._hook = naming_hook(self)

    @property
    def interval_s(self) -> float:
        """The time between beats."""
        return self.watch_s / BEATS

    # What the handle asks

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """Tell the others that this rank does something long on purpose: nobody is called hung meanwhile."""
        self._busy += 1
        self._say()
        try:
            yield
        finally:
            self._busy -= 1
            self._moved_s = time.monotonic()
            self._say()

    def explain(self, failure: BaseException) -> BaseException:
        """Return the failure, or what lies behind it where that is a lost rank; the other ranks are notified."""
        if isinstance(failure, LostRankError):
            return failure
        # Whoever asks has waited for others: what a backend raised there says nothing of whose fault it was.
        is_vague = type(failure) is SynchronizationError or isinstance(failure, (RuntimeError, ConnectionError))
        if is_vague:
            self._hear_first()
        if self.verdict is not None and (is_vague or self.verdict.kind != "reported"):
            return self._error(self.verdict)
        silent = self._silent_now() if is_vague else None
        if silent is not None:
            # A connection broke and a rank is not heard: that one is meant, though patience with it is not over.
            self._tell(silent.text, silent.rank)
            return self._error(silent)
        left = [beat for beat in self._heard.values() if beat.state == CLOSED]
        if is_vague and left:
            who, own = self.roll.members[left[0].rank], self.roll.members[self.roll.rank]
            text = f"{who} has ended at step {left[0].step} while rank {own.rank} still waits for it."
            self._tell(text, left[0].rank)
            hint = "Give every rank the same number of steps, or use model.join()."
            return self._error(RankVerdict("closed", left[0].rank, text, hint))
        if not isinstance(failure, NonFiniteError):  # which every rank finds by itself, as fast as a heartbeat tells
            self._tell(self._own_words(failure, is_vague))
        return failure

    def _own_words(self, failure: BaseException, is_vague: bool) -> str:
        """Return what to tell the others: of a connection that broke this rank is the witness, not the cause."""
        return f"{self.roll.members[self.roll.rank]} {'reports' if is_vague else 'failed'}: {first_line(failure)}"

    def _hear_first(self) -> None:
        """Listen for what lies behind a failure of a connection.

        A broken connection says less than the heartbeats will in a moment: whose process is gone, or why it ended. To
        blame the rank that noticed first would be wrong, so nothing is reported before all others were heard again, or
        one of them has been silent for longer than `watch_s`.
        """
        began_s, enough = time.monotonic(), self._looks + VAGUE_LOOKS
        while not self._stop.is_set():
            waited_s = time.monotonic() - began_s
            # Where this process stands still nobody looks, and time that passes says nothing of the others.
            if waited_s > (self.watch_s if self._looks >= enough else STILL_TIMES * self.watch_s):
                break
            if self._looks >= enough and self._heard_all_since(began_s):
                break
            if self._found.wait(self.interval_s / 2):
                break

    def _silent_now(self) -> RankVerdict | None:
        """Return who is silent and still waited for."""
        waited = self.waits_for
        return waited if waited is not None and waited.kind in ("silent", "network") else None

    def _heard_all_since(self, since_s: float) -> bool:
        return all(self._heard_s[rank] >= since_s for rank, beat in list(self._heard.items()) if beat.state != CLOSED)

    def close(self, *, tells: bool = True) -> None:
        """Say goodbye, or why this rank ends where an exception is on its way, and end the thread."""
        if self._stop.is_set():
            return
        atexit.unregister(self._at_exit)
        self._finalizer.cancel()
        if sys.excepthook is self._hook:
            sys.excepthook = self._hook_before
        if tells:
            self._tell_why(in_flight())
        self._state = CLOSED
        for _ in range(GOODBYES):
            self._say()
        self._stop.set()
        self._thread.join(2.0)
        self.roll.post.close()

    def _at_exit(self) -> None:
        """Say why this process ends: peers that wait for it then need not guess."""
        self._tell_why(getattr(sys, "last_value", None))
        self.close()

    def _tell_why(self, error: BaseException | None) -> None:
        """Tell the others what this rank's own code raised; a failure that all know is not sent again."""
        if error is None:
            return
        is_vague = from_transport(error)
        if is_vague:
            self._hear_first()
        if self.verdict is None:
            silent = self._silent_now() if is_vague else None
            if silent is None:
                self._tell(self._own_words(error, is_vague))
            else:
                self._tell(silent.text, silent.rank)

    # The thread

    def _run(self) -> None:
        next_s = last_s = time.monotonic()
        trusted_s = next_s
        while not self._stop.is_set() and self._watched() is not None:
            self._take(self.roll.post.hear(min(self.interval_s, next_s - time.monotonic())))
            now = time.monotonic()
            if now - last_s > 4 * self.interval_s:
                trusted_s = now + 2 * self.interval_s  # this process itself stood still: the others did not
            last_s = now
            if now < next_s:
                continue
            next_s = now + self.interval_s
            self._say()
            self._let_rest(now)
            if self.verdict is None and not self._state and now >= trusted_s:
                self._conclude(judge(self.own(), self._views(now), self.roll.members, self.watch_s, self.patience_s))
                self._looks += 1

    def _take(self, messages: list[bytes]) -> None:
        for data in messages:
            beat = read_beat(data, self.roll.token, len(self.roll.members))
            if beat is not None and beat.rank in self._heard:
                self._heard[beat.rank] = beat
                if beat.rank in self._silent:
                    self._silent.clear()
                    go_on(self.roll.addresses)
                self._heard_s[beat.rank] = time.monotonic()
                self.roll.post.refused.pop(beat.rank, None)
                self._take_news(beat)

    def _let_rest(self, now: float) -> None:
        """Notice who has not been heard for some beats."""
        longest_s = min(MISSED_BEATS * self.interval_s, MISSED_S)
        missing = {rank for rank, at_s in self._heard_s.items() if now - at_s > longest_s}
        if missing and not self._silent:
            rest(self.roll.addresses)
        self._silent = missing

    def _take_news(self, beat: Beat) -> None:
        """Accept from another rank who has left, for datagrams get lost, and that all is over."""
        for rank, age in beat.ages.items():
            if age == LEFT and rank in self._heard and self._heard[rank].state != CLOSED:
                self._heard[rank] = replace(self._heard[rank], state=CLOSED)
        if beat.cause and self.verdict is None and not self._state:
            # News of a loss is passed on at once: with many ranks it goes over many of them.
            self._conclude(judge(self.own(), self._views(time.monotonic()), self.roll.members, self.watch_s))

    def _age(self, rank: int, now: float) -> float:
        return LEFT if self._heard[rank].state == CLOSED else round(now - self._heard_s[rank], 3)

    def _views(self, now: float) -> dict[int, BeatRecord]:
        refused = self.roll.post.refused
        return {r: BeatRecord(beat, now - self._heard_s[r], refused.get(r, 0)) for r, beat in self._heard.items()}

    def _conclude(self, verdict: RankVerdict | None) -> None:
        if verdict is None or not verdict.is_final:
            self._wait_for(verdict)
            return
        self.verdict, self.waits_for = verdict, None
        self._tell(verdict.text, verdict.rank)
        self._found.set()
        log.error("%s", verdict.text)
        watched = self._watched()
        # What all ranks meet (a NaN, another codec) this one finds itself in a moment, with its own words.
        until_s = time.monotonic() + OWN_WORDS_BEATS * self.interval_s
        while not verdict.is_loss and time.monotonic() < until_s and getattr(watched, "failure", None) is None:
            if self._stop.wait(self.interval_s / 4):
                break
        if watched is not None:
            watched.break_off(self._error(verdict))

    def _wait_for(self, verdict: RankVerdict | None) -> None:
        """Say who is waited for, and again each time that has lasted twice as long; and that it is over."""
        before, self.waits_for = self.waits_for, verdict
        if verdict is None:
            if before is not None:
                log.warning("%s answers again, after %.1f s.", self.roll.members[before.rank], before.lasted_s)
            self._warned_s = 0.0
        elif verdict.lasted_s >= 2 * self._warned_s:
            self._warned_s = verdict.lasted_s
            text = verdict.text.replace(" is lost: ", " is silent: ")
            log.warning("%s Waiting for it, up to %.0f s in all. %s", text, self.patience_s, verdict.hint)

    def _error(self, verdict: RankVerdict) -> LostRankError:
        error = LostRankError(verdict.text, hint=verdict.hint)
        if verdict.kind != "stuck":
            lost = self.roll.members[verdict.rank]
            error.rank, error.host = lost.rank, lost.host
        return error

    def _tell(self, cause: str, lost: int = -1) -> None:
        if not self._cause:
            self._cause, self._lost = cause, lost
        for _ in range(GOODBYES):
            self._say()

    def _say(self) -> None:
        self.roll.post.say(self.own().to_bytes(self.roll.token))

    def own(self) -> Beat:
        """Return what this rank says of itself now."""
        now = time.monotonic()
        watched = self._watched()
        steps = [] if watched is None else list(watched.steps)
        last = steps[-1] if steps else None
        mark = 0 if last is None else (last.number + 1) * 1_000_000 + len(last.spans) + last.num_changes
        if mark != self._mark:
            self._mark, self._moved_s = mark, now
        waiting = last is not None and last.is_waiting
        state = self._state or (BUSY if self._busy else WAITING if waiting else COMPUTING)
        still_s = now - self._moved_s
        over = [step.ended_s - step.began_s for step in steps if step.ended_s and step.number > 0][-RECENT:]
        return Beat(
            self.roll.rank,
            -1 if last is None else last.number,
            mark,
            state,
            still_s,
            step_s=median(over) if over else 0.0,
            ages={rank: self._age(rank, now) for rank in self._heard},
            at=where(self._trainer) if state == COMPUTING and still_s > SILENCE_SHARE * self.watch_s / 2 else "",
            cause=self._cause[:600],
            lost=self._lost,
        )


def start_watchdog(watched: WatchedHandle, team: Team, watch_s: float, patience_s: float = 0.0) -> Watchdog | None:
    """Return a watchdog over the ranks of a team; every rank calls it. None where there is nobody to watch."""
    if team.size == 1 or watch_s <= 0:
        return None
    return Watchdog(watched, meet(team, patience_s), watch_s, patience_s)
