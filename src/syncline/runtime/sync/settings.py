"""What the user chooses, checked once: codec, error feedback, what to do about NaN, how often to compare replicas."""

from __future__ import annotations

import difflib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import syncline
from syncline.codec.names import scheme
from syncline.codec.scheme import Scheme
from syncline.errors import SynchronizationError
from syncline.program.pieces import piece_bytes_on
from syncline.runtime.alive.pace import check_rate
from syncline.runtime.wire.message import PROTOCOL

NAN_POLICIES = ("raise", "skip")
# Casts and 8-bit blocks lose so little that a residual costs more time than it is worth.
NO_FEEDBACK = ("fp32", "fp16", "bf16", "int8")
# These send one bit an element or less: what they leave out of the first gradients costs steps.
WARMED_UP = ("sign", "powersgd")
WARM_UP_STEPS = 100
AS_NEEDED = -1


@dataclass(frozen=True)
class Settings:
    """How gradients are synchronised.

    codec         what is sent: "fp32", "bf16", "fp16", "int8", "int4", "sign" or "powersgd:rank=1"
    nan           a gradient that is not finite: "raise" on every rank, or "skip" the step on every rank
    warmup        the first so many steps send int8, whatever the codec: gradients change fastest there. Default: 100
                  for codecs of one bit an element or less, else 0
    check_every   compare replicas every so many steps; 0: never
    piece_bytes   buckets are exchanged in pieces of this size, so that encoding and sending overlap. Default: 4 MiB on
                  the CPU, 32 MiB on a GPU
    levels        ranks inside each level, innermost first; only the outermost is compressed
    timeout_s     how long to wait for a peer's message
    wait_s        how long to wait for a silent or stalled rank before every rank raises; a process that has exited is
                  not waited for. None: timeout_s
    watch_s       a rank that is dead, silent, slow or hung is named within this time; 0: no heartbeats
    send_Bps      limit this rank's sending rate, to emulate a slow link; None: no limit
    """

    codec: str = "int8"
    nan: str = "raise"
    warmup: int = AS_NEEDED
    check_every: int = 100
    piece_bytes: int = AS_NEEDED
    levels: tuple[int, ...] = ()
    timeout_s: float = 300.0
    wait_s: float | None = None
    watch_s: float = 10.0
    send_Bps: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "codec", self.scheme.name)
        _among("nan", self.nan, NAN_POLICIES)
        if self.warmup == AS_NEEDED:
            object.__setattr__(self, "warmup", WARM_UP_STEPS if _family(self.codec) in WARMED_UP else 0)
        at_least("warmup", self.warmup, 0)
        at_least("check_every", self.check_every, 0)
        if self.piece_bytes != AS_NEEDED:
            at_least("piece_bytes", self.piece_bytes, 4096)
        if self.send_Bps is not None:
            check_rate(self.send_Bps)
        if self.watch_s and not 1.0 <= self.watch_s <= 3600.0:
            raise SynchronizationError(
                f"watch_s={self.watch_s!r} must be 0, or from 1 to 3600 seconds.",
                hint="A rank that pauses for less than half of it is not declared lost.",
            )

    @classmethod
    def given(cls, options: Mapping[str, Any], **fixed: Any) -> Settings:
        """Return the settings that a user's options ask for; one that is not known is named, with what was meant."""
        known = [field.name for field in fields(cls)]
        for name in options:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                meant = f'Did you mean "{near[0]}"? ' if near else ""
                raise SynchronizationError(
                    f'there is no option "{name}".', hint=f"{meant}Options: {', '.join(sorted(known))}."
                )
        return cls(**{**options, **fixed})

    @property
    def scheme(self) -> Scheme:
        """The scheme that `codec` names."""
        return scheme(self.codec)

    @property
    def patience_s(self) -> float:
        """How long a rank that is silent or stands still is waited for."""
        return self.timeout_s if self.wait_s is None else self.wait_s

    @property
    def wire_timeout_s(self) -> float:
        """How long a message is waited for: longer than patience lasts, so that heartbeats say who is lost first."""
        return self.timeout_s + 2 * self.watch_s

    def keeps_error(self, codec: str) -> bool:
        """Tell whether what a codec loses is kept and sent later: error feedback."""
        return _family(codec) not in NO_FEEDBACK

    def piece_bytes_on(self, device: str) -> int:
        """Return the size of pieces for gradients on the CPU ("cpu") or on a GPU."""
        return piece_bytes_on(device) if self.piece_bytes == AS_NEEDED else self.piece_bytes

    def warming_up(self, step: int) -> str:
        """Return what a summary says of a step that warms up: when that ends; nothing afterwards."""
        return f"; warming up: {self.codec} from step {self.warmup}" if step < self.warmup else ""

    def agreed(self) -> dict[str, object]:
        """Return what must be the same on every rank."""
        own = {"send_Bps", "timeout_s", "wait_s"}
        chosen = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in own}
        return {**chosen, "levels": list(self.levels), "version": syncline.__version__, "protocol": PROTOCOL}

    def fingerprint(self, codec: str) -> int:
        """Return the number every message carries, to show that its sender means the same by its bytes."""
        return zlib.crc32(f"{codec}|{syncline.__version__}|{PROTOCOL}".encode())


def _family(codec: str) -> str:
    """Return a codec's name without its parameters."""
    return codec.partition(":")[0]


def _among(what: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise SynchronizationError(f'{what}="{value}" is unknown.', hint=f"Known: {', '.join(known)}.")


def at_least(what: str, value: object, least: int) -> int:
    """Return a whole number from `least`, or raise."""
    if type(value) is not int or value < least:
        raise SynchronizationError(f"{what}={value!r} must be a whole number from {least}.")
    return value
