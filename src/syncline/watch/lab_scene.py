"""A running lab as one agent reads it: every host's and switch's interfaces, under the names and rates of the fabric.

    with find_lab() as visit, LabScene(visit) as scene:
        agent = scene.agent(spans=[...])

Each directed link is read where it leaves: what arrives at its other end is the same traffic.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType

from syncline.errors import LabError, WatchError
from syncline.lab.registry import Visit
from syncline.watch.agent import Agent, AgentOptions
from syncline.watch.clock import Clock
from syncline.watch.history import History
from syncline.watch.link_map import LinkMap
from syncline.watch.links import KnownLink
from syncline.watch.sources.host_load import HostLoad
from syncline.watch.sources.netdev import NetdevSource
from syncline.watch.sources.source import SourceTree
from syncline.watch.sources.tcp import TcpPathSource
from syncline.watch.spans.event import SpanSource

PORTS = r"(eth|p)\d+"
LOOK_S = 1.0
"""Time between two looks whether the lab is still there."""


class LabScene:
    """The namespaces of a lab's boxes, held open, and what their interfaces are called."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self.blueprint, _ = visit.describe()
        self._files: dict[str, int] = {}
        try:
            for number, box in enumerate(self.blueprint.boxes):
                self._files[box.name] = self._network(number)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> LabScene:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def agent(
        self, options: AgentOptions, spans: Sequence[SpanSource] = (), *, clock: Clock, history: History | None = None
    ) -> Agent:
        """Return an agent that reads all of the lab; its links carry the fabric's names."""
        hosts = {self.blueprint.boxes[number].name for number in self.blueprint.hosts}
        try:
            interfaces = [
                NetdevSource(SourceTree(), pattern=PORTS, netns=f"/proc/self/fd/{file}", prefix=name)
                for name, file in self._files.items()
            ]
        except WatchError as error:
            hint = "A lab of another user namespace can be read by root alone."
            raise WatchError(f"cannot read the lab's interfaces: {error.hint or error.message}", hint=hint) from None
        paths = [TcpPathSource(f"/proc/self/fd/{file}", name) for name, file in self._files.items() if name in hosts]
        named = replace(options, links=self.links())
        return Agent(named, interfaces, paths, spans, clock=clock, history=history, host_load=HostLoad(SourceTree()))

    def links(self) -> LinkMap:
        """Return what each interface is in the fabric: what leaves it, and what arrives there."""
        wires: dict[tuple[str, str], KnownLink] = {}
        boxes = self.blueprint.boxes
        for cable in self.blueprint.cables:
            for near, far, link, rate_Bps in cable.ends():
                rails = [end.interface for end in (near, far) if boxes[end.box].kind == "host"]
                rail = int(rails[0].removeprefix("eth")) if rails else -1
                name = self.blueprint.link_names[link]
                src, _, dst = name.partition(" #")[0].partition(" -> ")
                known = KnownLink(name, rate_Bps, rail, src, dst)
                wires[f"{boxes[near.box].name}/{near.interface}", "tx"] = known
                wires[f"{boxes[far.box].name}/{far.interface}", "rx"] = known
        return LinkMap(wires, self.blueprint.name)

    def follow(self, stop: threading.Event) -> None:
        """Set the event when the lab has ended: then there is nothing left to watch."""
        while not stop.wait(LOOK_S):
            try:
                self._visit.ask("describe")
            except LabError:
                stop.set()

    def close(self) -> None:
        """Let go of the namespaces."""
        for file in self._files.values():
            with suppress(OSError):
                os.close(file)
        self._files.clear()

    def _network(self, box: int) -> int:
        answer, files = self._visit.ask("namespaces", host=box)
        at = answer["kinds"].index("net")
        for file in (*files[:at], *files[at + 1 :]):
            os.close(file)
        return int(files[at])
