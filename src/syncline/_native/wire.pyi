"""The native transport; use syncline.runtime.sync.native_wire instead."""

from collections.abc import Sequence
from typing import Annotated

import numpy
from numpy.typing import NDArray

class Lane:
    """One exchange that is repeated; executed on the wire's threads."""

    def post(
        self,
        values: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")],
        residual: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")] | None,
        sequence: int,
        step: int,
        scale: float,
        fail: bool,
        trouble: tuple[int, int] | None,
    ) -> None:
        """Begin; the memory is in use until wait_done returns."""

    def wait_reduced(self, timeout_s: float) -> tuple[int, int, int, str]:
        """Wait until the sum is made; return (status, rank, parameter, text)."""

    def wait_done(self, timeout_s: float) -> tuple[int, int, int, str]:
        """Wait until all is done; return (status, rank, parameter, text)."""

    def take_back(
        self,
        values: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")],
        residual: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")],
    ) -> None:
        """Make the residual what it was before the last post, but for rounding."""

    def spans(self) -> list[tuple[int, int, float, float, int]]:
        """Return (work, peer, began_s, ended_s, bytes) since the last post."""

    @property
    def sent_bytes(self) -> int:
        """What one run sends."""

class Wire:
    """A transport between the ranks of a team, with threads of its own."""

    def __init__(
        self,
        rank: int,
        size: int,
        rails: Sequence[tuple[str, str]],
        secret: bytes,
        connections: int = 1,
        threads: int = 1,
        frame_bytes: int = 131072,
        stall_s: float = 0.2,
        give_up_s: float = 1.0,
        lead_bytes: int = 524288,
        unsent_bytes: int = 524288,
    ) -> None: ...
    @property
    def ports(self) -> list[int]:
        """Where each rail listens."""

    def connect(self, peer: int, rails: Sequence[tuple[str, int]]) -> None:
        """Say where a peer listens, (address, port) by rail."""

    def wait_connected(self, timeout_s: float) -> bool:
        """
        Wait until every peer is reached on some rail; False when it took longer.
        """

    def open(
        self, tag: int, peer: int, room: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu")]
    ) -> None:
        """Say where a message goes."""

    def send(
        self,
        tag: int,
        peer: int,
        data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu")],
        priority: int = 0,
    ) -> None:
        """Begin to send."""

    def wait(self, tag: int, peer: int, timeout_s: float) -> tuple[int, int, int, str]:
        """Wait for a message."""

    def finish(self, tag: int, timeout_s: float) -> tuple[int, int, int, str]:
        """Wait until what was sent under a tag has been received."""

    def lane(
        self,
        tag: int,
        bounds: Sequence[int],
        payload_bytes: Sequence[int],
        family: str,
        numbers: Sequence[int],
        scatter_only: bool,
        priority: int,
        codec: int,
        layout: int,
        origin: int,
        ends: Sequence[int],
        offset: int,
    ) -> Lane:
        """Return a lane with its buffers."""

    def lines(self) -> list[tuple[int, int, int, bool, bool, int, int, int, int, int, float]]:
        """
        Return (peer, rail, index, up, stalled, sent, received, resent, wrong, resets, rate).
        """

    def events(self) -> list[tuple[float, int, int, str]]:
        """
        Return (time_s, peer, rail, what) since the last call; -1: none in particular.
        """

    @property
    def num_strangers(self) -> int:
        """Who was turned away."""

    @property
    def cpu_s(self) -> float:
        """Processor time of the wire's threads."""

    def break_off(self, text: str) -> None:
        """End every wait with this text."""

    def close(self, patience_s: float) -> None:
        """Send what is under way, say goodbye, end the threads."""
