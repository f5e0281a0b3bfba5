"""How the lab treats packets: every knob of the emulation with the value that was measured to predict best.

docs/method/lab.md says what each is for and what other values did.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from syncline.errors import LabError

HEADER_BYTES = 14
"""Ethernet header: what tbf counts beyond the MTU."""


@dataclass(frozen=True)
class Profile:
    """Knobs of an emulated network; the defaults are the recommended ones.

    `switching` says what a switch is: a bridge where the switches form a tree, a router with multipath hashing where
    there are loops (`auto`), or one of the two everywhere. `reroute_after_s` is how long the lab, which plays the
    routing daemon, takes to notice a link that went down or came back; None: nobody reroutes.
    """

    mtu_bytes: int = 9000
    burst_bytes: int = 20_000
    queue_bytes: int = 8 << 20
    one_packet_per_buffer: bool = True
    """gso_max_size of one frame: fair interleaving, and one drop is one packet."""
    tcp_limit_output_bytes: int = 18_000
    congestion_control: str = "reno"
    slow_start_after_idle: bool = False
    tcp_window_bytes: int = 32 << 20
    """Largest TCP window; a site trunk with delay needs it."""
    shaper: Literal["tbf", "htb"] = "tbf"
    switching: Literal["auto", "bridge", "route"] = "auto"
    hash_policy: int = 0
    """fib_multipath_hash_policy: 0 hashes addresses only, so that a path does not change from run to run."""
    hash_seed: int = 1
    reroute_after_s: float | None = 0.05
    min_delay_s: float = 5e-4
    """Links with at least this latency get a relay that adds it; below it the latency is not emulated."""

    def __post_init__(self) -> None:
        if not 576 <= self.mtu_bytes <= 65_521:
            raise LabError(f"an MTU of {self.mtu_bytes} bytes is not possible.", hint="Use 1500 or 9000.")
        if self.burst_bytes < self.frame_bytes:
            raise LabError(
                f"a burst of {self.burst_bytes} bytes is less than one frame of {self.frame_bytes}.",
                hint="Use at least two frames: 20000 for MTU 9000, 3200 for 1500.",
            )
        for name, known in (("shaper", ("tbf", "htb")), ("switching", ("auto", "bridge", "route"))):
            if getattr(self, name) not in known:
                raise LabError(f'{name} "{getattr(self, name)}" is unknown.', hint=f"One of: {', '.join(known)}.")
        if self.hash_policy not in (0, 1):
            raise LabError(f"hash policy {self.hash_policy} is unknown.", hint="0: addresses; 1: addresses and ports.")

    @property
    def frame_bytes(self) -> int:
        """The largest frame: what a shaper counts for a full packet."""
        return self.mtu_bytes + HEADER_BYTES

    @property
    def goodput_share(self) -> float:
        """The share of a link's rate that TCP payload can have: IP, TCP and time stamp headers off, Ethernet on."""
        return (self.mtu_bytes - 52) / self.frame_bytes


DEFAULT = Profile()
