"""What a question may say about packets: loss, buffers, frames, marks, background load and failures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from syncline.describe.progress import Progress
from syncline.questions.answer import OptionGroup, Parameter

if TYPE_CHECKING:
    from syncline.sim.packet import LinkChange, Marks, PacketNetwork, PacketOptions
    from syncline.sim.packet import Progress as RunProgress
    from syncline.sim.packet.loaded import RandomLoad

AS_PACKETS = {"static": "ecmp", "minimal": "ecmp", "dimension-order": "first"}
"""What routing that a cluster's file may name is packet by packet, where it has another name."""


TransportArgument = Annotated[
    str,
    Parameter("roce, infiniband, dcqcn, irn, dctcp, swift, hpcc, timely, cubic, ndp, eqds, uec, srd or slotted."),
]
RoutingArgument = Annotated[str, Parameter("auto (as the cluster file has it), ecmp, adaptive, spray ...")]


@dataclass(frozen=True)
class PacketQuestion:
    """What is asked of packets beyond the network itself, as people write it; None: not stated."""

    loss: Annotated[
        Sequence[str] | None,
        Parameter(
            "Packet level: chance that a link destroys a packet; may be repeated.", metavar="RATE|LINK=RATE", rare=True
        ),
    ] = None
    buffer: Annotated[
        str | None,
        Parameter(
            "Packet level: buffer of a switch: 16MiB, or 20us at the rate of all its ports.",
            metavar="SIZE|TIME",
            rare=True,
        ),
    ] = None
    payload: Annotated[str | None, Parameter("Packet level: bytes of payload (default 4KiB).", rare=True)] = None
    mtu: Annotated[
        int | None, Parameter("Packet level: bytes of a frame with its headers (1500, 9000).", rare=True)
    ] = None
    recovery: Annotated[
        str | None, Parameter("Packet level: go-back-n or selective (default: the transport's).", rare=True)
    ] = None
    pfc: Annotated[
        bool | None,
        Parameter("Packet level: switches pause senders instead of dropping.", names=("--pfc/--no-pfc",), rare=True),
    ] = None
    ecn: Annotated[
        str | None,
        Parameter(
            "Packet level: queue depths between which a switch marks: 4us..12us.",
            metavar="TIME[..TIME[:P]]",
            rare=True,
        ),
    ] = None
    background: Annotated[
        str | None,
        Parameter("Packet level: other load: 0.3:websearch|hadoop|storage.", metavar="LOAD[:SIZES]", rare=True),
    ] = None
    fail: Annotated[
        Sequence[str] | None,
        Parameter(
            "Packet level: leaf-00<->spine-01@2ms..5ms fails; may be repeated.",
            metavar="PLACE@TIME[..TIME]",
            rare=True,
        ),
    ] = None
    reroute: Annotated[
        str | None, Parameter("With `fail`: switches route around it after this time (default 1ms).", rare=True)
    ] = None

    def refuse(self, level: str) -> None:
        """Raise if any was given: they mean something to packets only."""
        from syncline.errors import UsageError

        for name, value in vars(self).items():
            if value is not None and value != ():
                hint = "Name a family, and ask for level packet." if level == "nccl" else "Ask for level packet."
                raise UsageError(f"`{name}` is about packets; level {level} has none.", hint=hint)

    def options(self, network: PacketNetwork, transport: str, routing: str, seed: int, **more: Any) -> PacketOptions:
        """Return the options of a packet run; the flow level's transports have names of their own here."""
        from dataclasses import replace

        from syncline.sim.packet import PacketOptions
        from syncline.sim.transport import packet_transport

        changes = {} if self.recovery is None else {"recovery": self.recovery}
        name = packet_transport(transport, network.fabric)
        chosen: Any = packet_routing(routing, name, network, changes)
        found = PacketOptions(
            name,
            chosen,
            seed,
            changes=changes,
            lossless=self.pfc,
            marks=self._marks(),
            **self._buffer(),
            **self._loss(network),
            **more,
        )
        return replace(found, payload_bytes=self._payload_bytes(found))

    def changes(self, network: PacketNetwork) -> list[LinkChange]:
        """Return the failures and repairs."""
        from syncline.describe import units
        from syncline.errors import UsageError
        from syncline.sim.packet.play import link_changes

        if self.reroute is not None and not self.fail:
            raise UsageError("`reroute` says when switches route around a failure.", hint="Add `fail` (PLACE@TIME).")
        reroute_s = units.time(self.reroute or "1ms")
        return link_changes(network, [event for text in self.fail or () for event in _events(text, reroute_s)])

    def beside(self) -> RandomLoad | None:
        """Return the background load, if any."""
        from syncline.sim.packet.loaded import read_background

        return None if self.background is None else read_background(self.background)

    def _buffer(self) -> dict[str, Any]:
        from syncline.describe import units
        from syncline.errors import UsageError

        if self.buffer is None:
            return {}
        name, read = ("buffer_s", units.time) if self.buffer.endswith("s") else ("buffer_bytes", units.size)
        if read(self.buffer) == 0:
            raise UsageError("`buffer` 0 leaves no packet a place to wait.", hint="Write 16MiB or 20us.")
        return {name: read(self.buffer)}

    def _marks(self) -> Marks | None:
        """Read "4us..12us:0.2" as the depths at which marking begins and is full, and the chance there."""
        from syncline.describe import units
        from syncline.errors import UsageError
        from syncline.sim.packet import Marks

        if self.ecn is None:
            return None
        depths, _, chance = self.ecn.partition(":")
        low, _, high = depths.partition("..")
        low_s, high_s = units.time(low), units.time(high or low)
        if not 0 < low_s <= high_s:
            raise UsageError(f'`ecn` "{self.ecn}" marks from no depth on.', hint="Write 5us, or 4us..12us:0.2.")
        return Marks(low_s, high_s, _share("`ecn`", chance or "1", self.ecn))

    def _loss(self, network: PacketNetwork) -> dict[str, Any]:
        everywhere, single = 0.0, {}
        for text in self.loss or ():
            place, equals, rate = text.rpartition("=")
            if not equals:
                everywhere = _share("`loss`", text, text)
                continue
            for cable in _cables(network, place):
                single[cable] = _share("`loss`", rate, text)
        return {"loss": everywhere, "link_loss": single}

    def _payload_bytes(self, options: PacketOptions) -> int:
        from syncline.describe import units
        from syncline.errors import UsageError

        if self.mtu is None:
            return units.size(self.payload or "4KiB")
        if self.payload is not None:
            raise UsageError("`payload` and `mtu` both say how long packets are.", hint="Give one of them.")
        header = max(options.header_bytes)
        if not header + 64 <= self.mtu <= 65536:
            raise UsageError(f"`mtu` {self.mtu} is not from {header + 64} to 65536 bytes.", hint="Try 1500 or 9000.")
        return self.mtu - header


PacketArgument = Annotated[PacketQuestion | None, OptionGroup(PacketQuestion)]


def run_progress(progress: Progress | None) -> Callable[[RunProgress], None] | None:
    """Return the progress of a packet run, as thousandths of it."""
    return None if progress is None else lambda now: progress(round(1000 * now.share), 1000)


def packet_routing(routing: str, transport: str, network: PacketNetwork, changes: Mapping[str, Any]) -> str:
    """Return the routing of packets: `auto` is what the cluster's file says, else hashed; SRD sprays by itself."""
    from syncline.sim.packet.parameters import transport_set
    from syncline.sim.transport import AUTO, stated_routing

    if routing != AUTO:
        return routing
    stated = stated_routing(network.fabric)
    if stated == "spray" and transport_set(transport, changes).recovery == "go-back-n":
        return "adaptive"  # such a transport keeps its packets in order; switches that adapt do it for the receiver
    return AS_PACKETS.get(stated, stated) or "ecmp"


def _share(option: str, text: str, whole: str) -> float:
    from syncline.errors import UsageError

    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 1:
        raise UsageError(f'{option} "{whole}" has no chance from 0 to 1.', hint="Write it as 0.0001.")
    return found


def _cables(network: PacketNetwork, place: str) -> list[int]:
    from syncline.sim.packet.play import cables

    where = _where(place)
    return cables(network, where.link, where.device, where.which)


class FailurePlace(NamedTuple):
    """Where packets are lost or fail: a link, one of several cables, or a device."""

    link: str | None = None
    device: str | None = None
    which: int | None = None

    def as_keys(self) -> dict[str, str | int]:
        """Return what is said, as a scenario's keys."""
        return {name: value for name, value in self._asdict().items() if value is not None}


def _where(place: str) -> FailurePlace:
    """Read "leaf-00<->spine-01", one of several cables ("leaf-00<->spine-01#2") or a device as a scenario's keys."""
    name, _, which = place.strip().partition("#")
    if "->" not in name:
        return FailurePlace(device=place.strip())
    return FailurePlace(link=name, which=int(which)) if which.isdecimal() else FailurePlace(link=place.strip())


def _events(text: str, reroute_s: float) -> list[Any]:
    """Read "leaf-00<->spine-01@2ms..5ms" as a failure and its repair."""
    from syncline.describe import units
    from syncline.errors import UsageError
    from syncline.sim.scenario import Event

    place, at, times = text.rpartition("@")
    begin, dots, end = times.partition("..")
    if not at or not place.strip() or (dots and units.time(end) <= units.time(begin)):
        raise UsageError(f'`fail` "{text}" cannot be read.', hint="Write 'leaf-00 <-> spine-01@2ms..5ms' or NIC@2ms.")
    where = _where(place).as_keys()
    events = [Event.model_validate({"at": units.time(begin), "rate": 0.0, "reroute": reroute_s, **where})]
    if dots:
        events.append(Event.model_validate({"at": units.time(end), "rate": "full", **where}))
    return events
