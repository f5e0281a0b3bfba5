"""The one name of a collective: operation, group, size and codec, in plans, traces, logs and telemetry.

    CollectiveName("all-reduce", "data", 64 << 20, "int8")       # all-reduce@data/64MiB+int8
    canonical("nccl:_allgather_base", 1 << 20).key()             # all-gather/1MiB

A plan, a simulated step, the runtime, NCCL Inspector, PyTorch's flight recorder and NCCL's log spell one collective
differently. Each spelling becomes this name, so that predicted and measured can be matched. The size is the largest
buffer of one rank, before any codec: input and output of an all-reduce, output of an all-gather, input of a
reduce-scatter. Group and codec are empty where the source does not state them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from syncline.describe import units
from syncline.errors import UnitError

DENSE = frozenset({"", "none", "plain", "dense", "raw", "fp32", "float32", "f32"})
"""Names of a codec that changes nothing."""

OPERATIONS = (
    "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "reduce", "gather", "scatter",
    "send-receive", "barrier",
)  # fmt: skip
_WORDS = {
    "allreduce": "all-reduce",
    "average": "all-reduce",
    "allgather": "all-gather",
    "reducescatter": "reduce-scatter",
    "alltoall": "all-to-all",
    "broadcast": "broadcast",
    "bcast": "broadcast",
    "barrier": "barrier",
    "sendrecv": "send-receive",
    "sendreceive": "send-receive",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "send": "send-receive",
    "recv": "send-receive",
    "receive": "send-receive",
}
_GROUPS = {
    "dp": "data", "data": "data", "ddp": "data", "fsdp": "data", "gradients": "data", "replica": "data", "zero": "data",
    "tp": "tensor", "tensor": "tensor", "sequence": "tensor", "sp": "tensor",
    "pp": "pipeline", "pipeline": "pipeline", "stage": "pipeline",
    "cp": "context", "context": "context", "ep": "expert", "expert": "expert", "experts": "expert",
}  # fmt: skip
_NAME = re.compile(r"([a-z-]+)(?:@([^/+]*))?/([0-9.]+[KMGTPE]?i?B)(?:\+(.+))?")
_WORD = re.compile(r"[a-z0-9]+(?:[_-][a-z0-9]+)*")


@dataclass(frozen=True)
class CollectiveName:
    """What one collective is called. `key()` is its name with the size rounded down to a power of two."""

    operation: str
    group: str = ""
    size_bytes: int = 0
    codec: str = ""

    def __str__(self) -> str:
        group = f"@{self.group}" if self.group else ""
        codec = f"+{self.codec}" if self.codec else ""
        return f"{self.operation}{group}/{_size_text(self.size_bytes)}{codec}"

    def key(self) -> str:
        """Return the name of all collectives of its kind whose size is within a factor of two."""
        return str(replace(self, size_bytes=size_bucket(self.size_bytes)))

    def matches(self, other: CollectiveName) -> bool:
        """Tell whether two names may be of one collective: what one of them leaves open may be anything."""
        return (
            self.operation == other.operation
            and size_bucket(self.size_bytes) == size_bucket(other.size_bytes)
            and (not self.group or not other.group or self.group == other.group)
            and (self.codec == other.codec or not self.codec or not other.codec)
        )


def size_bucket(size_bytes: int) -> int:
    """Return the largest power of two not above a size; sizes within a factor of two are looked at together."""
    return 1 << (int(size_bytes).bit_length() - 1) if size_bytes > 0 else 0


def canonical(text: str, size_bytes: int = 0, group: str = "", codec: str = "") -> CollectiveName:
    """Return the name of a collective from any source's spelling; words it does not know stay as they are.

    `AllReduce`, `nccl:all_reduce`, `_reduce_scatter_base`, `average int8` and `ring all-reduce` are all understood.
    """
    known = parse(text)
    if known is not None:
        return replace(known, size_bytes=size_bytes or known.size_bytes)
    plain = text.removeprefix("nccl:").removeprefix("gloo:").removeprefix("c10d:")
    operation = operation_of(plain)
    words = _WORD.findall(plain.lower())
    if words[:1] == ["average"] and len(words) > 1 and not codec:
        codec = plain.split(None, 1)[1]
    # In `tensor all-gather` the word is a group; in `reduce_scatter_tensor` it is PyTorch's word for its argument.
    part = group_of(group) or (group_of(plain) if " " in plain else "")
    return CollectiveName(operation or plain.strip()[:60] or "collective", part, size_bytes, codec_of(codec))


def operation_of(text: str) -> str:
    """Return the operation that a text names; "" where it names none."""
    letters = re.sub(r"[^a-z]", "", text.lower())
    named = [(-len(word), letters.find(word), operation) for word, operation in _WORDS.items() if word in letters]
    return min(named)[2] if named else ""


def group_of(text: str) -> str:
    """Return the kind of a group: `dp`, `DDP` and `mesh_dp` are `data`; "" for names that do not tell."""
    return next((_GROUPS[word] for word in re.findall(r"[a-z]+", text.lower()) if word in _GROUPS), "")


def codec_of(text: str) -> str:
    """Return a codec's name; empty for those that change nothing."""
    word = text.strip().lower()
    return "" if word in DENSE else word[:40]


def _size_text(size_bytes: int) -> str:
    """Return a size as people write it where that is exact, else in bytes: a name is read back as what it was."""
    text = units.show_size(size_bytes).replace(" ", "")
    try:
        return text if units.size(text) == size_bytes else f"{size_bytes}B"
    except UnitError:
        return f"{size_bytes}B"


def parse(text: str) -> CollectiveName | None:
    """Return the name that `str` or `key` wrote, or None."""
    match = _NAME.fullmatch(text)
    if match is None or match[1] not in OPERATIONS:
        return None
    return CollectiveName(match[1], match[2] or "", round(units.size(match[3])), match[4] or "")


def expected(times_s: Mapping[str, float], name: CollectiveName) -> float | None:
    """Return the time expected of a collective: under its own name, else under the one name that may be meant."""
    for key in (str(name), name.key()):
        if key in times_s:
            return times_s[key]
    meant = {times_s[key] for key in times_s if _may_mean(key, name)}
    return meant.pop() if len(meant) == 1 else None


def expected_by_size(times_s: Mapping[str, float], name: CollectiveName) -> float | None:
    """Return the time expected of a collective whose size has no expectation: in proportion to the nearest size.

    Right where bytes set the time; too little where a call's own cost does, so it is shown and raises no alert.
    """
    alike = {
        other: times_s[key]
        for key in times_s
        if (other := _name_of(key)) is not None and replace(other, size_bytes=name.size_bytes).matches(name)
    }
    kinds = {(other.group, other.codec) for other in alike}
    if len(kinds) != 1 or name.size_bytes <= 0:
        return None
    near = min(alike, key=lambda other: abs(other.size_bytes.bit_length() - name.size_bytes.bit_length()))
    return alike[near] * name.size_bytes / near.size_bytes if near.size_bytes > 0 else None


def _name_of(key: str) -> CollectiveName | None:
    """Return the name and size of an expectation's key in any spelling; None where it has no size."""
    known = parse(key)
    text, slash, size = key.rpartition("/")
    if known is not None or not slash:
        return known
    try:
        return canonical(text, round(units.size(size)))
    except UnitError:
        return None


def _may_mean(key: str, name: CollectiveName) -> bool:
    other = _name_of(key)
    if other is not None:
        return other.matches(name)
    return "/" not in key and canonical(key, name.size_bytes).matches(name)
