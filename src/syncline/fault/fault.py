"""A fault that happens: what breaks, how, when and for how long. Labs inject it, simulators and diagnosis name it.

    parse_fault("host-01:eth0 down at 5s for 2s")
    parse_fault("leaf-00 <-> spine-01 rate 25% at 2s")
    parse_fault("host-03 paused for 500ms")

`fabric.faults.FailedPart` is another thing: a link that a cluster file says is broken, for good.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypedDict

from syncline.describe import units
from syncline.errors import FaultError, UnitError


class FaultKind(StrEnum):
    """What goes wrong."""

    DOWN = "down"  # a cable is pulled
    RATE = "rate"  # a link runs at a lower rate
    LOSS = "loss"  # a share of packets is lost
    TRAFFIC = "traffic"  # somebody else's flow from one host to another
    KILLED = "killed"  # every process of a host is killed
    PAUSED = "paused"  # every process of a host stands still
    SLOW = "slow"  # the processes of a host get a share of their time
    MTU = "mtu"  # one end of a cable has another MTU than the rest


HOST_KINDS = frozenset({FaultKind.KILLED, FaultKind.PAUSED, FaultKind.SLOW})
_SHARE_ONLY = frozenset({FaultKind.LOSS, FaultKind.SLOW})
_NO_VALUE = frozenset({FaultKind.DOWN, FaultKind.KILLED, FaultKind.PAUSED})
_EXAMPLES = {
    FaultKind.DOWN: "host-01:eth0 down at 5s for 2s",
    FaultKind.RATE: "leaf-00 <-> spine-01 rate 25%",
    FaultKind.LOSS: "host-01:eth0 loss 1%",
    FaultKind.TRAFFIC: "host-00 -> host-03 traffic 40%",
    FaultKind.KILLED: "host-01 killed at 5s",
    FaultKind.PAUSED: "host-01 paused for 500ms",
    FaultKind.SLOW: "host-01 slow 50%",
    FaultKind.MTU: "host-01:eth0 mtu 1500",
}
_FORM = 'Write "TARGET KIND [VALUE] [at TIME] [for TIME]", such as "host-01:eth0 down at 5s for 2s".'
_WORDS = {"kill": "killed", "pause": "paused", "degraded": "rate", "flap": "down"}
_TIME = re.compile(r"(.*\S)\s+(at|for)\s+(\S+)", re.DOTALL)


@dataclass(frozen=True)
class Fault:
    """One fault. `target` is a host, a host's interface or NIC, a switch, `a <-> b`, or `a -> b` (one direction).

    Rates are those of the described cluster (a lab scales them as it scales links). `share` is a part of 1: of the
    rate that is left, of packets lost, of time that a slow host has. Without `duration_s` it lasts to the end.
    """

    target: str
    kind: FaultKind
    rate_Bps: float | None = None
    share: float | None = None
    mtu_bytes: int | None = None
    start_s: float = 0.0
    duration_s: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", FaultKind(self.kind))
        if not self.target.strip():
            raise FaultError("a fault needs a target.", hint=_FORM)
        for name in ("start_s", "duration_s", "share", "rate_Bps"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise FaultError(f"{name} of a fault is {value!r}; it must be a number from 0 on.")
        self._check_value()
        self._check_target()

    @property
    def end_s(self) -> float:
        """When it is over; infinite if it lasts."""
        return math.inf if self.duration_s is None else self.start_s + self.duration_s

    @property
    def text(self) -> str:
        """The fault as `parse_fault` reads it."""
        words = [self.target, self.kind.value]
        if self.mtu_bytes is not None:
            words.append(str(self.mtu_bytes))
        elif self.share is not None:
            words.append(f"{self.share * 100:.10g}%")
        elif self.rate_Bps is not None:
            words.append(f"{self.rate_Bps * 8:.12g}bps")
        if self.start_s:
            words += ["at", f"{self.start_s:.12g}s"]
        if self.duration_s is not None:
            words += ["for", f"{self.duration_s:.12g}s"]
        return " ".join(words)

    def ends(self) -> tuple[str, str, bool] | None:
        """Return (a, b, both directions) of a target that names two places, else None."""
        for arrow, both in (("<->", True), ("->", False)):
            if arrow in self.target:
                a, _, b = self.target.partition(arrow)
                return a.strip(), b.strip(), both
        return None

    def _check_value(self) -> None:
        kind, like = self.kind, _EXAMPLES[self.kind]
        given = [name for name in ("rate_Bps", "share", "mtu_bytes") if getattr(self, name) is not None]
        if kind in _NO_VALUE and given:
            raise FaultError(f'"{kind}" takes no value.', hint=f'Write "{like}".')
        if kind is FaultKind.MTU and (given != ["mtu_bytes"] or not 68 <= (self.mtu_bytes or 0) <= 65_535):
            raise FaultError("an mtu is a number of bytes from 68 to 65535.", hint=f'Write "{like}".')
        if kind in _SHARE_ONLY and given != ["share"]:
            raise FaultError(f'"{kind}" needs a percentage.', hint=f'Write "{like}".')
        if kind in (FaultKind.RATE, FaultKind.TRAFFIC) and (len(given) != 1 or "mtu_bytes" in given):
            raise FaultError(f'"{kind}" needs a rate or a percentage.', hint=f'Write "{like}".')
        if self.share is not None and not 0 < self.share <= 1:
            raise FaultError(f"{self.share:.4%} is out of range: above 0% and at most 100%.", hint=f'Write "{like}".')
        if self.rate_Bps is not None and self.rate_Bps <= 0:
            raise FaultError("a rate of 0 is a link that is down.", hint=f'Write "{_EXAMPLES[FaultKind.DOWN]}".')
        if kind is FaultKind.KILLED and self.duration_s is not None:
            raise FaultError("a killed process does not come back, so `for` does not apply.", hint=f'Write "{like}".')

    def _check_target(self) -> None:
        ends, like = self.ends(), _EXAMPLES[self.kind]
        if ends is not None and not (ends[0] and ends[1]):
            raise FaultError(f'"{self.target}" names only one end.', hint=f'Write "{like}".')
        if self.kind is FaultKind.TRAFFIC and (ends is None or ends[2]):
            raise FaultError("traffic goes from one host to another.", hint=f'Write "{like}".')
        if self.kind in HOST_KINDS and (ends is not None or ":" in self.target or "/" in self.target):
            raise FaultError(f'only a host can be {self.kind}, not "{self.target}".', hint=f'Write "{like}".')


class _FaultValue(TypedDict, total=False):
    rate_Bps: float
    share: float
    mtu_bytes: int


def parse_fault(text: str) -> Fault:
    """Read a fault such as "host-01:eth0 down at 5s for 2s"; a FaultError says what is wrong with it."""
    rest, times = text.strip(), {"at": 0.0}
    seen: set[str] = set()
    while match := _TIME.fullmatch(rest):
        rest, word, value = match.groups()
        if word in seen:
            raise FaultError(f'"{text}" says `{word}` twice.', hint=_FORM)
        seen.add(word)
        times[word] = _time(value, word)
    target, kind, value = _words(rest, text)
    return Fault(target, kind, **_value(kind, value), start_s=times["at"], duration_s=times.get("for"))


def parse_faults(texts: Iterable[str]) -> tuple[Fault, ...]:
    """Read several faults; one text may hold more than one, with a semicolon or a new line between."""
    parts = (part for text in texts for part in re.split(r"[;\n]", text))
    return tuple(parse_fault(part) for part in parts if part.strip() and not part.strip().startswith("#"))


def _words(rest: str, text: str) -> tuple[str, FaultKind, str | None]:
    """Split what stands before the times: target, kind, and a value if there is one."""
    words = rest.split()
    if len(words) < 2:
        raise FaultError(f'cannot read the fault "{text}".', hint=_FORM)
    for at in (len(words) - 1, len(words) - 2):
        if at > 0 and (kind := _kind(words[at])) is not None:
            return " ".join(words[:at]), kind, words[at + 1] if at + 1 < len(words) else None
    word = next((word for word in reversed(words[1:]) if word.isalpha()), words[-1])
    known = ", ".join(kind.value for kind in FaultKind)
    raise FaultError(f'"{word}" in "{text}" is not a kind of fault.', detail=f"Kinds: {known}.", hint=_FORM)


def _kind(word: str) -> FaultKind | None:
    name = _WORDS.get(word.lower(), word.lower())
    return FaultKind(name) if name in set(FaultKind) else None


def _value(kind: FaultKind, text: str | None) -> _FaultValue:
    if text is None:
        return {}
    if kind is FaultKind.MTU:
        return {"mtu_bytes": int(text) if text.isdecimal() else 0}
    if kind is FaultKind.SLOW and re.fullmatch(r"\d+(\.\d+)?x", text):
        factor = float(text[:-1])
        return {"share": 1 / factor if factor >= 1 else 2.0}
    if text.endswith("%"):
        try:
            return {"share": float(text[:-1]) / 100}
        except ValueError:
            raise FaultError(f'"{text}" is not a percentage.', hint=f'Write "{_EXAMPLES[kind]}".') from None
    try:
        return {"rate_Bps": units.rate(text)}
    except UnitError:
        raise FaultError(
            f'"{text}" is neither a rate nor a percentage.',
            hint=f'Write "{_EXAMPLES[kind]}" or a rate such as 100Mbps.',
        ) from None


def _time(text: str, word: str) -> float:
    try:
        return units.time(text)
    except UnitError:
        raise FaultError(f'"{text}" after `{word}` is not a time.', hint='Write "at 5s for 200ms".') from None
