"""MSCCL XML: thread blocks of steps on every GPU, as the MSCCL runtime reads them.

The format (facts from the runtime's parser): `algo` has name, proto, nchannels, nchunksperloop, ngpus, coll, inplace;
`gpu` the chunks of its input, output and scratch buffers; `tb` one peer to send to, one to receive from, and a
channel; `step` a type, source and destination (buffer and offset), a count of chunks, and one step to wait for
(depid, deps). A chain of `nop` steps waits for several.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.parsers import expat

from syncline.errors import ScheduleError

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
    return _Parser(name).read(text)


class _Parser:
    """Builds an `Algo` as expat meets the elements; refuses document types, so nothing can expand."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.algo: Algo | None = None
        self.gpu: MscclGpu | None = None
        self.block: ThreadBlock | None = None
        self.num_steps = 0
        self.expat = expat.ParserCreate()
        self.expat.StartElementHandler = self.start
        self.expat.EndElementHandler = self.end
        self.expat.StartDoctypeDeclHandler = self.refuse_doctype

    def read(self, text: str | bytes) -> Algo:
        try:
            self.expat.Parse(text, True)
        except expat.ExpatError as error:
            where = f"{self.name} line {error.lineno} column {error.offset + 1}"
            reason = expat.errors.messages[error.code]
            raise ScheduleError(f"this is not XML: {reason}.", where=where) from None
        except ValueError as error:
            raise ScheduleError(f"this is not XML: {error}.", where=self.name) from None
        if self.algo is None:
            raise ScheduleError("no <algo> found.", where=self.name)
        missing = sorted(set(range(self.algo.num_gpus)) - set(self.algo.gpus))
        if missing:
            raise ScheduleError(f"ngpus is {self.algo.num_gpus} but gpu {missing[0]} is missing.", where=self.name)
        return self.algo

    def refuse_doctype(self, *_: object) -> None:
        raise self.error("a document type is not allowed here.")

    def error(self, message: str, hint: str = "") -> ScheduleError:
        return ScheduleError(message, where=f"{self.name} line {self.expat.CurrentLineNumber}", hint=hint)

    def number(self, attrs: dict[str, str], key: str, low: int, high: int = 1 << 24, default: int | None = None) -> int:
        if key not in attrs:
            if default is not None:
                return default
            raise self.error(f'"{key}" is missing.', hint=_HINTS.get(key, ""))
        try:
            value = int(attrs[key]) if len(attrs[key]) < 20 else high + 1
        except ValueError:
            raise self.error(f'{key}="{attrs[key][:40]}" is not a whole number.') from None
        if not low <= value <= high:
            raise self.error(f"{key}={attrs[key][:40]} is outside {low} to {high}.")
        return value

    def start(self, tag: str, attrs: dict[str, str]) -> None:
        if tag == "algo" and self.algo is None:
            self.start_algo(attrs)
        elif tag == "gpu" and self.algo is not None and self.gpu is None:
            self.start_gpu(self.algo, attrs)
        elif tag == "tb" and self.algo is not None and self.gpu is not None and self.block is None:
            self.start_block(self.algo, self.gpu, attrs)
        elif tag == "step" and self.gpu is not None and self.block is not None:
            self.start_step(self.gpu, self.block, attrs)
        else:
            raise self.error(f"<{tag[:40]}> has no place here.")

    def end(self, tag: str) -> None:
        if tag == "gpu":
            self.gpu = None
        elif tag == "tb":
            self.block = None

    def start_algo(self, attrs: dict[str, str]) -> None:
        gpus = self.number(attrs, "ngpus", 1, 1 << 14)
        self.algo = Algo(
            attrs.get("name", self.name)[:200],
            attrs.get("coll", ""),
            gpus,
            self.number(attrs, "nchunksperloop", 1, 1 << 20),
            bool(self.number(attrs, "inplace", 0, 1, default=0)),
            self.number(attrs, "root", 0, gpus - 1, default=0),
        )

    def start_gpu(self, algo: Algo, attrs: dict[str, str]) -> None:
        number = self.number(attrs, "id", 0, algo.num_gpus - 1)
        if number in algo.gpus:
            raise self.error(f"gpu {number} comes twice.")
        chunks = {buf: self.number(attrs, f"{buf}_chunks", 0, 1 << 20) for buf in "ios"}
        self.gpu = algo.gpus[number] = MscclGpu(number, chunks)

    def start_block(self, algo: Algo, gpu: MscclGpu, attrs: dict[str, str]) -> None:
        number = self.number(attrs, "id", 0, 1 << 16)
        if number in gpu.blocks:
            raise self.error(f"thread block {number} of gpu {gpu.id} comes twice.")
        send, recv = (self.number(attrs, way, -1, algo.num_gpus - 1) for way in ("send", "recv"))
        if gpu.id in (send, recv):
            raise self.error(f"thread block {number} of gpu {gpu.id} has itself as a peer.")
        self.block = gpu.blocks[number] = ThreadBlock(number, send, recv, self.number(attrs, "chan", 0, 1 << 12))

    def start_step(self, gpu: MscclGpu, block: ThreadBlock, attrs: dict[str, str]) -> None:
        self.num_steps += 1
        if self.num_steps > MAX_STEPS:
            raise self.error(f"more than {MAX_STEPS:,} steps.")
        kind, place = attrs.get("type", ""), f"gpu {gpu.id} thread block {block.id}"
        if kind not in TYPES:
            raise self.error(f'step type "{kind[:40]}" is not one of {", ".join(TYPES)}.')
        if self.number(attrs, "s", 0) != len(block.steps):
            raise self.error(f"{place}: steps are not numbered 0, 1, 2, ...")
        if kind in SENDS and block.send < 0:
            raise self.error(f"{place} sends without a peer to send to.")
        if kind in RECEIVES and block.recv < 0:
            raise self.error(f"{place} receives without a peer to receive from.")
        depid, deps = self.number(attrs, "depid", -1), self.number(attrs, "deps", -1)
        src = (attrs.get("srcbuf", ""), self.number(attrs, "srcoff", -1))
        dst = (attrs.get("dstbuf", ""), self.number(attrs, "dstoff", -1))
        if kind != "nop" and not {src[0], dst[0]} <= {"i", "o", "s"}:
            raise self.error(f'{place}: buffers are i, o or s, not "{src[0][:10]}" and "{dst[0][:10]}".')
        wait = (depid, deps) if depid >= 0 else None
        block.steps.append(BlockStep(kind, src, dst, self.number(attrs, "cnt", 0), wait, self.expat.CurrentLineNumber))
