"""How packets are treated: one immutable description that a run, a test and a report share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from syncline.errors import SimulationError
from syncline.sim.packet.law import Law
from syncline.sim.packet.parameters import Marks, Setting, TransportSet, transport_set

Routing = Literal["ecmp", "flowlet", "adaptive", "spray", "first", "valiant", "ugal"]
ROUTINGS: tuple[str, ...] = get_args(Routing)
Switching = Literal["store-and-forward", "cut-through"]
ENGINE_ROUTING = {"ecmp": 0, "flowlet": 0, "spray": 0, "first": 1, "adaptive": 2, "valiant": 3, "ugal": 4}


@dataclass(frozen=True)
class TrafficClass:
    """A class of its own for some traffic: its transport, and its weight among weighted classes (0: strict)."""

    name: str
    transport: str
    weight: int = 0
    changes: Mapping[str, Setting] = field(default_factory=dict)


@dataclass(frozen=True)
class PacketOptions:
    """Everything that decides what happens to packets; the fabric says rates and latencies.

    `transport` names a parameter set (`transport_sets()`), `changes` replaces numbers of it. What it asks of switches
    (lossless, marks, trimming) can be overridden. `classes` adds traffic classes after it, in falling priority.
    """

    transport: str = "dcqcn"
    routing: Routing = "ecmp"
    seed: int = 0
    queue_pairs: int = 1
    payload_bytes: int = 4096
    switching: Switching = "store-and-forward"
    buffer_bytes: float = 64e6
    """Of each switch, shared by its ports (Tomahawk 4 has 113 MB, Spectrum-4 160 MB)."""
    buffer_s: float = 0.0
    """Instead, as a time: what all ports of the switch carry in it; 0: `buffer_bytes`."""
    alpha: float = 1.0
    """A queue may take so many times what is free of the buffer."""
    queue_bytes: int = 0
    """A fixed limit a queue instead of alpha; 0: none."""
    pause_bytes: int = 0
    """Lossless: what one ingress may hold before it is paused; 0: an eighth of what is free."""
    headroom_bytes: int | None = None
    """Kept of each switch's buffer for lossless packets under way; None: enough for every port."""
    lossless: bool | None = None
    marks: Marks | None = None
    loss: float = 0.0
    """Chance that a network link destroys a packet."""
    link_loss: Mapping[int, float] = field(default_factory=dict)
    """Another chance for single links of the fabric, both ways of their cable."""
    weight: int = 0
    credit_bytes: int | None = None
    """With credits: what a link may send ahead; None: enough to fill it."""
    ugal_bias_packets: float = 2.0
    message_s: float = 0.0
    """From post to wire and from wire to completion, once a message."""
    hosts: str = ""
    """The flow level's transport by which hosts and cards take time for a message (LogGP's o and g); empty: none."""
    changes: Mapping[str, Setting] = field(default_factory=dict)
    classes: tuple[TrafficClass, ...] = ()
    cross_rail: Literal["fabric", "nvlink"] = "fabric"
    skips_steady: bool = False
    """Whether what repeats itself window after window is counted instead of run (`docs/method/packet.md`)."""
    law: Law | None = None
    """A congestion control law of the user's instead of the transport's (`with_law`)."""

    def __post_init__(self) -> None:
        if self.routing not in ROUTINGS:
            raise SimulationError(f'no routing is called "{self.routing}".', hint=f"One of: {', '.join(ROUTINGS)}.")
        if self.switching not in get_args(Switching):
            raise SimulationError(
                f'switching is "{self.switching}".', hint=f"One of: {', '.join(get_args(Switching))}."
            )
        for name, low, high in (
            ("payload_bytes", 1, 1 << 20), ("queue_pairs", 1, 1024), ("alpha", 0.0, 1e6), ("loss", 0.0, 1.0),
            ("queue_bytes", 0, 1 << 40), ("pause_bytes", 0, 1 << 40), ("weight", 0, 1000), ("message_s", 0.0, 1e3),
            ("buffer_bytes", 0, 1e13), ("buffer_s", 0.0, 1.0), ("seed", 0, (1 << 64) - 1),
        ):  # fmt: skip
            value = getattr(self, name)
            if not low <= value <= high:
                raise SimulationError(f"{name} is {value}; it must be from {low:,} to {high:,}.")
        if len(self.classes) > 6:
            raise SimulationError(f"{len(self.classes)} further traffic classes; ports have room for 6.")
        for transport in self.sets:
            if transport.recovery == "go-back-n" and (self.routing == "spray" or transport.spread == "packet"):
                raise SimulationError(
                    f'transport "{transport.name}" resends everything after a gap, and spraying reorders packets.',
                    hint="Use ndp, eqds, uec or srd, or changes={'recovery': 'selective'}.",
                )

    @property
    def sets(self) -> tuple[TransportSet, ...]:
        """The parameter sets of the main traffic and of the further classes."""
        more = tuple(transport_set(each.transport, each.changes) for each in self.classes)
        return (transport_set(self.transport, self.changes), *more)

    @property
    def header_bytes(self) -> tuple[int, ...]:
        """What every packet carries beside its payload, by traffic class."""
        return tuple(
            each.profile(payload_bytes=self.payload_bytes, rate_Bps=1.0, rtt_s=1.0, data_class=1).header_bytes
            for each in self.sets
        )

    @property
    def sprayed(self) -> bool:
        """Whether the packets of a connection take many paths."""
        return self.routing in ("spray", "adaptive") or self.sets[0].spread in ("packet", "recycle")

    @property
    def credits(self) -> bool:
        """Whether links hand out credits instead of sending pauses."""
        return any(each.credits for each in self.sets)


def with_classes(options: PacketOptions, most: int) -> PacketOptions:
    """Return the options with classes 1 to `most` under the same transport, each sent after those before it."""
    more = (TrafficClass(f"class {i}", options.transport, 0, options.changes) for i in range(1, most + 1))
    return replace(options, classes=tuple(more))


def with_law(options: PacketOptions, law: Law) -> PacketOptions:
    """Return the options with the transport's congestion control replaced by a law."""
    return replace(options, law=law, changes={**options.changes, "kind": "custom"})


@dataclass(frozen=True)
class LinkChange:
    """From `time_s` on the cable of a link has `factor` of its rate, both ways; 0: it is down.

    Switches route around it `reroute_s` later; None: they never learn of it.
    """

    time_s: float
    link: int
    factor: float = 0.0
    reroute_s: float | None = 1e-3
