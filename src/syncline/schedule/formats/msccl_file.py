"""MSCCL XML: thread blocks of steps on every GPU, as the MSCCL runtime reads them.

The format (facts from the runtime's parser): `algo` has name, proto, nchannels, nchunksperloop, ngpus, coll, inplace;
`gpu` the chunks of its input, output and scratch buffers; `tb` one peer to send to, one to receive from, and a
channel; `step` a type, source and destination (buffer and offset), a count of chunks, and one step to wait for
(depid, deps). A chain of `nop` steps waits for several.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING

from syncline.describe.xml import parse_xml
from syncline.errors import ScheduleError

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

MAX_BYTES = 1 << 26
MAX_STEPS = 1 << 20
TYPES = {
    "s": "send", "r": "receive", "rcs": "receive, copy, send", "rrs": "receive, reduce, send",
    "rrc": "receive, reduce, copy", "rrcs": "receive, reduce, copy, send", "cpy": "copy", "re": "reduce", "nop": "wait",
}  # fmt: skip
_HINTS = {"ngpus": 'Early files lack it: add ngpus="8" and coll="allreduce", say, to <algo>.'}
SENDS = frozenset({"s", "rcs", "rrs", "rrcs"})
RECEIVES = frozenset({"r", "rcs", "rrs", "rrc", "rrcs"})


@dataclass(frozen=True)
class BlockStep:
    """One step of a thread block."""

    type: str
    src: tuple[str, int]
    dst: tuple[str, int]
    count: int
    wait: tuple[int, int] | None
    line: int


@dataclass
class ThreadBlock:
    """One thread block: steps in order, one peer each way."""

    id: int
    send: int
    recv: int
    channel: int
    steps: list[BlockStep] = field(default_factory=list)


@dataclass
class MscclGpu:
    """One GPU: chunks of its buffers, and its thread blocks."""

    id: int
    chunks: dict[str, int]
    blocks: dict[int, ThreadBlock] = field(default_factory=dict)


@dataclass
class Algo:
    """One MSCCL algorithm."""

    name: str
    coll: str
    num_gpus: int
    chunks_per_loop: int
    in_place: bool
    root: int
    gpus: dict[int, MscclGpu] = field(default_factory=dict)


def parse(text: str | bytes, name: str = "algorithm") -> Algo:
    """Read MSCCL XML; anything wrong is a `ScheduleError` that says on which line."""
    if len(text) > MAX_BYTES:
        raise ScheduleError(f"{len(text):,} bytes are more than the {MAX_BYTES:,} read.", where=name)
    root = _Node(parse_xml(text, name, ScheduleError), name)
    if root.element.tag != "algo":
        raise root.error(f"<{str(root.element.tag)[:40]}> has no place here.")
    if sum(1 for _ in root.element.iter("step")) > MAX_STEPS:
        raise root.error(f"more than {MAX_STEPS:,} steps.")
    num_gpus = root.number("ngpus", 1, 1 << 14)
    algo = Algo(
        root.text("name", name)[:200],
        root.text("coll"),
        num_gpus,
        root.number("nchunksperloop", 1, 1 << 20),
        bool(root.number("inplace", 0, 1, default=0)),
        root.number("root", 0, num_gpus - 1, default=0),
    )
    for node in root.children("gpu"):
        number = node.number("id", 0, num_gpus - 1)
        if number in algo.gpus:
            raise node.error(f"gpu {number} comes twice.")
        algo.gpus[number] = _gpu(node, number, num_gpus)
    missing = sorted(set(range(num_gpus)) - set(algo.gpus))
    if missing:
        raise ScheduleError(f"ngpus is {num_gpus} but gpu {missing[0]} is missing.", where=name)
    return algo


@dataclass(frozen=True)
class _Node:
    """An element and the file it is in."""

    element: Element
    name: str

    def error(self, message: str, hint: str = "") -> ScheduleError:
        return ScheduleError(message, where=f"{self.name} line {self.element.sourceline}", hint=hint)

    def children(self, tag: str) -> Iterator[_Node]:
        for child in map(_Node, self.element.iterchildren("*"), repeat(self.name)):
            if child.element.tag != tag:
                raise child.error(f"<{str(child.element.tag)[:40]}> has no place here.")
            yield child

    def text(self, key: str, default: str = "") -> str:
        return self.element.get(key, default)

    def number(self, key: str, low: int, high: int = 1 << 24, default: int | None = None) -> int:
        value = self.element.get(key)
        if value is None:
            if default is not None:
                return default
            raise self.error(f'"{key}" is missing.', hint=_HINTS.get(key, ""))
        try:
            number = int(value) if len(value) < 20 else high + 1
        except ValueError:
            raise self.error(f'{key}="{value[:40]}" is not a whole number.') from None
        if not low <= number <= high:
            raise self.error(f"{key}={value[:40]} is outside {low} to {high}.")
        return number


def _gpu(node: _Node, number: int, num_gpus: int) -> MscclGpu:
    gpu = MscclGpu(number, {buffer: node.number(f"{buffer}_chunks", 0, 1 << 20) for buffer in "ios"})
    for inner in node.children("tb"):
        at = inner.number("id", 0, 1 << 16)
        if at in gpu.blocks:
            raise inner.error(f"thread block {at} of gpu {number} comes twice.")
        send, recv = (inner.number(way, -1, num_gpus - 1) for way in ("send", "recv"))
        if number in (send, recv):
            raise inner.error(f"thread block {at} of gpu {number} has itself as a peer.")
        block = gpu.blocks[at] = ThreadBlock(at, send, recv, inner.number("chan", 0, 1 << 12))
        block.steps += [
            _step(step, k, block, f"gpu {number} thread block {at}") for k, step in enumerate(inner.children("step"))
        ]
    return gpu


def _step(node: _Node, number: int, block: ThreadBlock, place: str) -> BlockStep:
    kind = node.text("type")
    if kind not in TYPES:
        raise node.error(f'step type "{kind[:40]}" is not one of {", ".join(TYPES)}.')
    if node.number("s", 0) != number:
        raise node.error(f"{place}: steps are not numbered 0, 1, 2, ...")
    if kind in SENDS and block.send < 0:
        raise node.error(f"{place} sends without a peer to send to.")
    if kind in RECEIVES and block.recv < 0:
        raise node.error(f"{place} receives without a peer to receive from.")
    depid, deps = node.number("depid", -1), node.number("deps", -1)
    src, dst = ((node.text(f"{end}buf"), node.number(f"{end}off", -1)) for end in ("src", "dst"))
    if kind != "nop" and not {src[0], dst[0]} <= {"i", "o", "s"}:
        raise node.error(f'{place}: buffers are i, o or s, not "{src[0][:10]}" and "{dst[0][:10]}".')
    line: int = node.element.sourceline  # type: ignore[assignment]
    return BlockStep(kind, src, dst, node.number("cnt", 0), (depid, deps) if depid >= 0 else None, line)
