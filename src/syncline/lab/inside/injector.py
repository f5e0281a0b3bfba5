"""Carry faults out inside the lab, on time, and undo them; several on one link add up to the worst of them."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from syncline.errors import LabError
from syncline.lab.blueprint import End
from syncline.lab.inside import kernel
from syncline.lab.inside.build import Works
from syncline.lab.inside.nursery import Child, Nursery
from syncline.lab.inside.protocol import Message

_DUTY_PERIOD_S = 0.02
_NFT_PATIENCE_S = 10


class Timekeeper(Protocol):
    """What an injector needs of its server."""

    def at(self, delay_s: float, action: Callable[[], None]) -> None:
        """Do something later."""

    def tell(self, channel: socket.socket | None, event: Message) -> None:
        """Send an event."""


@dataclass
class Active:
    """A fault that was ordered: its description, and what must be stopped when it ends."""

    number: int
    text: str
    kind: str
    directions: list[tuple[int, int]]
    host: int
    to: int
    address: str
    rate_Bps: float
    share: float
    mtu_bytes: int
    helper: Child | None = None
    begun: bool = False
    over: bool = False
    pids: list[int] = field(default_factory=list)


class Injector:
    """All faults of one lab."""

    def __init__(self, clock: Timekeeper, works: Works, nursery: Nursery) -> None:
        self.clock, self.works, self.nursery = clock, works, nursery
        self.faults: dict[int, Active] = {}
        self._number = itertools.count(1)
        self._lossy: dict[tuple[int, int], float] = {}

    def order(self, *, start_s: float, duration_s: float | None, **what: Any) -> Message:
        """Take a fault on: it begins after `start_s` and ends `duration_s` later, or when it is mended."""
        directions = [(int(cable), int(side)) for cable, side in what.pop("directions")]
        fault = Active(next(self._number), directions=directions, **what)
        if fault.kind == "loss" and shutil.which("nft") is None:
            raise LabError("losing packets needs the `nft` program.", hint="Install nftables.")
        self.faults[fault.number] = fault
        if start_s > 0:
            self.clock.at(start_s, lambda: self._begin(fault))
        else:
            self._begin(fault)
        if duration_s is not None:
            self.clock.at(start_s + duration_s, lambda: self._end(fault))
        return {"fault": fault.number}

    def mend(self, *, fault: int) -> Message:
        """End a fault now."""
        if fault in self.faults:
            self._end(self.faults[fault])
        return {}

    def listing(self) -> list[Message]:
        """Return the faults that are going on or to come."""
        return [{"fault": f.number, "text": f.text, "begun": f.begun} for f in self.faults.values()]

    def _begin(self, fault: Active) -> None:
        if fault.over:
            return
        fault.begun = True
        self._change(fault)
        if fault.kind == "killed":  # there is no end of it to tell
            self.faults.pop(fault.number)

    def _end(self, fault: Active) -> None:
        if fault.over:
            return
        fault.over = True
        self.faults.pop(fault.number, None)
        if fault.begun:
            self._change(fault)

    def _change(self, fault: Active) -> None:
        event: Message = {"event": "fault", "fault": fault.number, "text": fault.text}
        try:
            getattr(self, f"_do_{fault.kind}")(fault)
        except Exception as error:  # a fault that cannot be carried out is told, and must not end the lab
            event["error"] = str(error)
        self.clock.tell(None, {**event, "what": "ended" if fault.over else "begun", "at_s": time.monotonic()})

    # Links: what holds is worked out anew from all faults that are going on

    def _of_kind(self, kind: str, direction: tuple[int, int]) -> list[Active]:
        return [f for f in self.faults.values() if f.begun and f.kind == kind and direction in f.directions]

    def _do_down(self, fault: Active) -> None:
        for cable in sorted({cable for cable, _ in fault.directions}):
            wanted_down = not self.works.blueprint.cables[cable].up or bool(
                self._of_kind("down", (cable, 0)) + self._of_kind("down", (cable, 1))
            )
            if wanted_down != (cable in self.works.down):
                self.works.set_cable(cable, up=not wanted_down)
        delay_s = self.works.profile.reroute_after_s
        if delay_s is not None:
            self.clock.at(delay_s, lambda: self._reroute(fault))

    def _reroute(self, fault: Active) -> None:
        event: Message = {"event": "fault", "fault": fault.number, "text": fault.text, "what": "rerouted"}
        try:
            event["routes"] = self.works.route()
        except Exception as error:  # as above
            event["error"] = str(error)
        self.clock.tell(None, {**event, "at_s": time.monotonic()})

    def _do_rate(self, fault: Active) -> None:
        for direction in fault.directions:
            near, _, _, full = self.works.blueprint.cables[direction[0]].ends()[direction[1]]
            limits = [f.rate_Bps or f.share * full for f in self._of_kind("rate", direction)]
            self.works.shape(near, min([full, *limits]))

    def _do_mtu(self, fault: Active) -> None:
        for cable in sorted({cable for cable, _ in fault.directions}):
            end = self._mismatched_end(cable)
            sizes = [f.mtu_bytes for f in self._of_kind("mtu", (cable, 0)) + self._of_kind("mtu", (cable, 1))]
            self.works.set_mtu(end, min(sizes, default=self.works.profile.mtu_bytes))

    def _mismatched_end(self, cable: int) -> End:
        """Return the end whose MTU changes: the switch's, so that a host sends what its port does not take."""
        ends = self.works.blueprint.cables[cable]
        return ends.a if self.works.blueprint.boxes[ends.b.box].kind == "host" else ends.b

    def _do_loss(self, fault: Active) -> None:
        for direction in fault.directions:
            share = max((f.share for f in self._of_kind("loss", direction)), default=0.0)
            self._lose(direction, share)

    def _lose(self, direction: tuple[int, int], share: float) -> None:
        """Drop a share of the frames that arrive over a link, by a rule at the receiving interface."""
        if self._lossy.get(direction, 0.0) == share:
            return
        _, far, _, _ = self.works.blueprint.cables[direction[0]].ends()[direction[1]]
        table = f"loss_{far.interface}"
        lines = [f"delete table netdev {table}"] if direction in self._lossy else []
        if share:
            rule = "drop" if share >= 1 else f"numgen random mod 1000000 < {round(share * 1e6)} counter drop"
            lines += [
                f"table netdev {table} {{",
                " chain arrive {",
                f"  type filter hook ingress device {far.interface} priority 0;",
                f"  {rule}",
                " }",
                "}",
            ]
        self._nft(far.box, "\n".join(lines) + "\n")
        self._lossy[direction] = share
        if not share:
            del self._lossy[direction]

    def _nft(self, box: int, script: str) -> None:
        namespace = self.works.namespaces[box]
        done = subprocess.run(
            ["nft", "-f", "-"],  # noqa: S607
            input=script.encode(),
            capture_output=True,
            timeout=_NFT_PATIENCE_S,
            check=False,
            preexec_fn=lambda: kernel.setns(namespace, kernel.NEWNET),
        )
        if done.returncode:
            raise LabError(f"nft refused: {done.stderr.decode(errors='replace').strip()}")

    def _do_traffic(self, fault: Active) -> None:
        if fault.over:
            if fault.helper is not None:
                self.nursery.stop_helper(recording=fault.helper.number)
            return
        here, there = self.works.namespaces[fault.host], self.works.namespaces[fault.to]
        order = {
            "here": here,
            "there": there,
            "address": fault.address,
            "rate_Bps": fault.rate_Bps,
            "mtu_bytes": self.works.profile.mtu_bytes,
        }
        fault.helper = self.nursery.helper("traffic", order, [here, there])

    # Hosts

    def _do_killed(self, fault: Active) -> None:
        if not fault.over:
            self._signal(self.nursery.pids_of_host(fault.host), signal.SIGKILL)

    def _do_paused(self, fault: Active) -> None:
        if not fault.over:
            fault.pids = self.nursery.pids_of_host(fault.host)
            self._signal(fault.pids, signal.SIGSTOP)
        elif not self._still_paused(fault.host):
            self._signal(self.nursery.pids_of_host(fault.host), signal.SIGCONT)

    def _do_slow(self, fault: Active) -> None:
        if fault.over:
            if not self._still_paused(fault.host):
                self._signal(self.nursery.pids_of_host(fault.host), signal.SIGCONT)
        else:
            self._halt(fault, 0)

    def _halt(self, fault: Active, turn: int) -> None:
        """Stop a slow host's processes for their share of a period; every few periods look for new ones."""
        if fault.over:
            return
        if turn % 10 == 0:
            fault.pids = self.nursery.pids_of_host(fault.host)
        self._signal(fault.pids, signal.SIGSTOP)
        self.clock.at(_DUTY_PERIOD_S * (1 - fault.share), lambda: self._let_go(fault, turn))

    def _let_go(self, fault: Active, turn: int) -> None:
        if fault.over:
            return
        if not self._still_paused(fault.host):
            self._signal(fault.pids, signal.SIGCONT)
        self.clock.at(_DUTY_PERIOD_S * fault.share, lambda: self._halt(fault, turn + 1))

    def _still_paused(self, host: int) -> bool:
        return any(f.begun and f.kind == "paused" and f.host == host for f in self.faults.values())

    def _signal(self, pids: list[int], number: signal.Signals) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
