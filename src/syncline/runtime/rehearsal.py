"""A small model to rehearse with: what its work costs a processor, and its training under a synchronisation.

trainer = Trainer({"width": 256, "depth": 4}, rank=0)
trainer.work(group)                  # processor seconds of forward, of each bucket's backward, of the optimizer
trainer.train("int8", steps=8)       # wall seconds of steps, losses, bytes sent, one step as a Timeline
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from syncline.program.overlap import StageCosts, Work
from syncline.program.pieces import shard_sizes
from syncline.program.stages import ADD, DECODE, ENCODE, FIRST, LAST, MIDDLE, SUM, StagePhase
from syncline.runtime.group import Group
from syncline.runtime.sync.averagers import Averagers
from syncline.runtime.sync.bucket import Bucket, Layout
from syncline.runtime.sync.settings import Settings
from syncline.runtime.sync.start import synchronize
from syncline.runtime.sync.step import IGNORES, Step
from syncline.runtime.wire.memory_wire import MemoryWire, wires
from syncline.timeline import Source, SourceKind, SpanKind, Timeline, TimelineBuilder
from syncline.version import __version__

BUCKET_MB = 4.0
VOCABULARY = 256


@dataclass(frozen=True)
class Moment:
    """A rank's own work as it was measured at one time, and how many processors all ranks together kept busy then.

    Others want processors too, and a rank that waits for one that has none leaves its own idle.
    """

    work: Work
    cores: float


@dataclass(frozen=True)
class Steps:
    """Wall seconds and losses of training steps, what this rank sent in one, and one as its Timeline.

    The Timeline is the last but one under a codec; under plain DDP one more, in which the buckets are watched.
    """

    times_s: list[float]
    losses: list[float]
    wire_bytes: float
    timeline: Timeline


class ByteGpt(nn.Module):
    """A byte-level GPT; returns the mean cross-entropy of the next byte."""

    def __init__(self, width: int, depth: int, context: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(context, width)
        layer = nn.TransformerEncoderLayer(
            width, max(1, width // 64), 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(context), persistent=False)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Return the loss on bytes of shape (batch, length + 1)."""
        before, after = text[:, :-1], text[:, 1:]
        length = before.shape[1]
        x = self.tokens(before) + self.positions.weight[:length]
        mask = self.get_buffer("mask")[:length, :length]
        logits = self.head(self.norm(self.blocks(x, mask=mask, is_causal=True)))
        return functional.cross_entropy(logits.flatten(0, 1), after.flatten())


class Trainer:
    """Trains the same model from the same start on the same text, under one synchronisation after the other.

    `send_Bps` holds what this rank sends to a rate. The backend's own all-reduce cannot be held back, so that plain
    DDP then is float32 through the runtime. `levels` are those of every synchronisation but plain DDP.
    """

    def __init__(
        self, model: Mapping[str, int], rank: int, send_Bps: float | None = None, levels: tuple[int, ...] = ()
    ) -> None:
        self.width, self.depth = int(model.get("width", 256)), int(model.get("depth", 4))
        self.batch, self.length = int(model.get("batch", 2)), int(model.get("length", 64))
        self.rank, self.send_Bps, self.levels = rank, send_Bps, levels
        torch.set_num_threads(1)
        self._text = _text()

    def work(self, group: Group, repeats: int = 3) -> Moment:
        """Measure one rank's own work, in steps whose ranks meet at every bucket and send next to nothing."""
        model, optimizer = self._fresh()
        marks: list[tuple[float, int]] = []

        def hook(state: object, bucket: Any) -> torch.futures.Future[torch.Tensor]:
            marks.append((time.thread_time(), bucket.buffer().numel()))
            met: Any = dist.all_reduce(torch.zeros(1), async_op=True)
            future: torch.futures.Future[torch.Tensor] = met.get_future().then(lambda _: bucket.buffer())
            return future

        hook.__annotations__.clear()
        model.register_comm_hook(None, hook)
        found = []
        wall = spent = 0.0
        for step in range(repeats + 2):
            if step == 2:  # buckets are rebuilt after the first
                group.barrier()
                wall, spent = time.perf_counter(), time.process_time()
            marks.clear()
            times = [time.thread_time()]
            loss = model(self._batch(step))
            times.append(time.thread_time())
            loss.backward()
            times.append(time.thread_time())
            optimizer.step()
            optimizer.zero_grad()
            times.append(time.thread_time())
            cuts = [times[1], *(mark for mark, _ in marks)]
            parts = [after - before for before, after in pairwise(cuts)]
            parts[-1] += times[2] - cuts[-1]
            found.append((times[1] - times[0], parts, times[3] - times[2]))
        used = group.numbers([time.process_time() - spent, time.perf_counter() - wall])
        steady = found[2:]
        middle = sorted(range(len(steady)), key=lambda i: sum(steady[i][1]))[len(steady) // 2]
        forward, backward, last = steady[middle]
        cores = float(used[:, 0].sum() / used[:, 1].mean())
        return Moment(Work(forward, tuple(backward), tuple(size for _, size in marks), last), cores)

    def train(self, synchronisation: str, steps: int, warm_up: int = 3) -> Steps:
        """Train with plain DDP ("ddp") or through a codec, and return what the steps after the warm-up took."""
        model, optimizer = self._fresh()
        codec = codec_of(synchronisation, self.send_Bps)
        options: dict[str, Any] = {"check_every": 0, "warmup": 0, "send_Bps": self.send_Bps}
        levels = () if synchronisation == "ddp" else self.levels
        handle = None if codec is None else synchronize(model, codec=codec, levels=levels, **options)
        times, losses = [], []
        for step in range(warm_up + steps):
            if step == warm_up:
                dist.barrier()
            began = time.perf_counter()
            loss = model(self._batch(step))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(loss.detach()))
            if step >= warm_up:
                times.append(time.perf_counter() - began)
        elements = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
        size = dist.get_world_size()
        if handle is None:
            sent = 8.0 * elements * (size - 1) / size
            return Steps(times, losses, sent, self._watched_step(model, optimizer, warm_up + steps))
        handle.close()
        return Steps(times, losses, float(handle.report().wire_bytes), handle.timeline())

    def _watched_step(self, model: DistributedDataParallel, optimizer: torch.optim.Optimizer, step: int) -> Timeline:
        """Return one more step of plain DDP, with the time of every bucket's all-reduce."""
        size = dist.get_world_size()
        buckets: list[tuple[float, float, int]] = []

        def hook(state: object, bucket: Any) -> torch.futures.Future[torch.Tensor]:
            gradients, began = bucket.buffer().div_(size), time.perf_counter()

            def done(future: Any) -> torch.Tensor:
                buckets.append((began, time.perf_counter(), gradients.nbytes))
                summed: torch.Tensor = future.value()[0]
                return summed

            work: Any = dist.all_reduce(gradients, async_op=True)
            future: torch.futures.Future[torch.Tensor] = work.get_future().then(done)
            return future

        hook.__annotations__.clear()
        model.register_comm_hook(None, hook)
        times = [time.perf_counter()]
        loss = model(self._batch(step))
        times.append(time.perf_counter())
        loss.backward()
        times.append(time.perf_counter())
        optimizer.step()
        times.append(time.perf_counter())
        source = Source(SourceKind.RUNTIME, "syncline rehearsal", __version__, IGNORES)
        builder = TimelineBuilder(source)
        last = max((began for began, _, _ in buckets), default=times[2])
        for begin, end in ((times[0], last), (times[2], times[3])):
            builder.add_span(self.rank, begin, end, SpanKind.COMPUTE, "step")
        for began, ended, nbytes in buckets:
            builder.add_span(self.rank, began, ended, SpanKind.COLLECTIVE, "step", size_bytes=nbytes)
        return builder.build()

    def _fresh(self) -> tuple[DistributedDataParallel, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = ByteGpt(self.width, self.depth, self.length)
        ddp = DistributedDataParallel(model, bucket_cap_mb=BUCKET_MB, gradient_as_bucket_view=True)
        return ddp, _optimizer(ddp)

    def _batch(self, step: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(1000 * step + self.rank)
        start = torch.randint(0, len(self._text) - self.length - 1, (self.batch,), generator=generator)
        return torch.stack([self._text[s : s + self.length + 1] for s in start.tolist()]).long()


def _optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=3e-4)


def codec_of(synchronisation: str, send_Bps: float | None) -> str | None:
    """Return the codec of a synchronisation; None: plain DDP, by the backend's own all-reduce."""
    if synchronisation != "ddp":
        return synchronisation
    return None if send_Bps is None else "fp32"


def stage_times(
    codec: str, sizes: Sequence[int], num_ranks: int, repeats: int = 3, device: torch.device | None = None
) -> list[StageCosts]:
    """Return what the exchange's stages cost a processor for pieces of these sizes: its own code, nothing on a wire.

    Pieces follow each other as in a step, so that each finds the cache as it would there. Bringing messages over is the
    network's, and left out. On a device they cost what passes meanwhile, until it has done its part.
    """
    made = [_pieces(codec, size, num_ranks, device) for size in sizes]
    found: list[list[list[float]]] = [[] for _ in sizes]
    for number in range(repeats + 1):
        for rows, pieces in zip(found, made, strict=True):
            rows.append(_walked(pieces, Step(number, 0, codec, 0.0)))
    return [StageCosts(*(statistics.median(stage) for stage in zip(*rows[1:], strict=True))) for rows in found]


def dense_time(num_elements: int, num_ranks: int) -> float:
    """Return what copying or adding one element of float32 costs a processor inside a level."""
    (stages,) = stage_times("fp32", [num_elements], num_ranks)
    own = shard_sizes(num_elements, num_ranks)[0]
    handled = 2 * (num_elements - own) + num_ranks * own  # sent and taken, added and sent back
    return (stages.send_s + stages.reduce_s + stages.collect_s) / handled


def _pieces(
    codec: str, num_elements: int, num_ranks: int, device: torch.device | None
) -> list[tuple[MemoryWire, Bucket]]:
    """Return a bucket of one piece for each rank, all in this process, with gradients of a usual size."""
    settings = Settings(codec=codec, piece_bytes=max(4096, 8 * num_elements))
    rows = next(rows for rows in range(math.isqrt(num_elements), 0, -1) if num_elements % rows == 0)
    layout = Layout(("gradient",), ((rows, num_elements // rows),))
    made = []
    for rank, wire in enumerate(wires(num_ranks)):
        values = torch.randn(num_elements, device=device) * 1e-3
        links: Any = SimpleNamespace(wires=[wire], rank=rank, num_ranks=num_ranks, device=values.device, team=None)
        made.append((wire, Averagers(settings, links).bucket(0, layout, values, codec)))
    return made


def _walked(ranks: list[tuple[MemoryWire, Bucket]], step: Step) -> list[float]:
    """Walk the stages of all ranks' pieces and return a rank's seconds of sending, reducing and collecting."""
    for _, bucket in ranks:
        bucket.begin(bucket.buffer, step)
    pieces: list[Any] = [bucket.pieces[0] for _, bucket in ranks]
    spent = [_together(ranks, [piece.prepare for piece in pieces]), 0.0, 0.0]
    program = pieces[0].program
    for stage in program.stages:
        calls = [partial(piece.carry_out, stage) for piece in pieces]
        calls += [piece.post for piece in pieces] if stage is program.last_of(StagePhase.REDUCE) else []
        spent[_PARTS[stage.name]] += _together(ranks, calls)
    return spent


_PARTS = {ENCODE: 0, FIRST: 0, ADD: 1, SUM: 1, MIDDLE: 1, DECODE: 2, LAST: 2}
"""Which of the three costs a stage belongs to."""


def _together(ranks: list[tuple[MemoryWire, Bucket]], calls: Sequence[Callable[[], object]]) -> float:
    """Make the calls of all ranks and return the mean of a rank."""
    own = ranks[0][1].buffer
    clock = time.perf_counter if own.is_cuda else time.thread_time
    began, copied = clock(), sum(wire.copying_s for wire, _ in ranks)
    for call in calls:
        call()
    if own.is_cuda:
        torch.cuda.current_stream(own.device).synchronize()
    copied = sum(wire.copying_s for wire, _ in ranks) - copied
    return max(0.0, clock() - began - copied) / len(ranks)


def network_time(group: Group, size_bytes: int) -> dict[str, float]:
    """Return the processor seconds of one byte and of one message, both ends together, by the backend's own ring.

    `small_s` is what an all-reduce of one number usually takes, `large_s` what one of so many bytes takes at best: who
    else wants the processors delays one, and does not change the rate of a link.
    """
    small, large = torch.zeros(1), torch.zeros(size_bytes // 4)
    found, took = {}, {}
    for name, tensor, count in (("small", small, 20), ("large", large, 3)):
        dist.all_reduce(tensor)
        group.barrier()
        began, marks = time.process_time(), [time.perf_counter()]
        for _ in range(count):
            dist.all_reduce(tensor)
            marks.append(time.perf_counter())
        took[name] = [after - before for before, after in pairwise(marks)]
        spent = group.numbers([(time.process_time() - began) / count]).sum()
        found[name] = float(spent)
    size = group.size
    messages = 2 * (size - 1) * size
    moved = messages * size_bytes / size
    return {
        "message_s": found["small"] / messages,
        "byte_s": max(0.0, found["large"] - found["small"]) / moved,
        "small_s": statistics.median(took["small"]),
        "large_s": min(took["large"]),
    }


class _Crumbs(nn.Module):
    """A model of many small parameters, each a bucket of its own: what a bucket costs beside its bytes shows."""

    NUM, SIZE = 8, 1024

    def __init__(self) -> None:
        super().__init__()
        self.crumbs = nn.ParameterList([nn.Parameter(torch.randn(self.SIZE)) for _ in range(self.NUM)])

    def forward(self, by: torch.Tensor) -> torch.Tensor:
        return torch.stack([(crumb * by).sum() for crumb in self.crumbs]).sum()


def post_time(group: Group, steps: int = 12) -> float:
    """Return the processor seconds of one message of the exchange, both ends: hook, threads, posting, waiting.

    It is what a bucket of almost no bytes costs, less the stages that `stage_times` knows, by message.
    """
    free = _bucket_time(group, None, steps)
    (stages,) = stage_times("fp32", [_Crumbs.SIZE], group.size)
    known = stages.send_s + stages.reduce_s + stages.collect_s
    return max(0.0, _bucket_time(group, "fp32", steps) - free - known) / max(1, 2 * (group.size - 1))


def _bucket_time(group: Group, codec: str | None, steps: int) -> float:
    """Return the processor seconds of a small bucket, on average over the ranks; None: nothing is sent."""
    model = DistributedDataParallel(_Crumbs(), bucket_cap_mb=4 * _Crumbs.SIZE / 2**20, gradient_as_bucket_view=True)
    if codec is None:
        model.register_comm_hook(None, _nothing)
    handle = None if codec is None else synchronize(model, codec=codec, check_every=0)
    spent = 0.0
    for step in range(3 + steps):
        if step == 3:
            group.barrier()
            spent = time.process_time()
        model(torch.ones(1)).backward()
        model.zero_grad()
    spent = time.process_time() - spent
    if handle is not None:
        handle.close()
    return float(group.numbers([spent]).mean()) / (steps * _Crumbs.NUM)


def _nothing(state: object, bucket: Any) -> torch.futures.Future[torch.Tensor]:
    """Leave a bucket as it is."""
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


_nothing.__annotations__.clear()  # torch compares them with its own


def _text() -> torch.Tensor:
    """Return real text: the source of some of Python's standard library."""
    import argparse
    import inspect
    import tarfile
    import typing

    text = "".join(inspect.getsource(module) for module in (argparse, tarfile, typing, inspect))
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
