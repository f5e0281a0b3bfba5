"""A small model to rehearse with: what its work costs a processor, and its training under a synchronisation.

trainer = Trainer({"width": 256, "depth": 4}, rank=0)
trainer.work()                       # processor seconds of forward, of each bucket's backward, of the optimizer
trainer.train("int8", steps=8)       # wall seconds of steps, losses, bytes sent, one step as a Timeline
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from syncline import __version__
from syncline.codec.scheme import scheme
from syncline.runtime.group import Group
from syncline.runtime.start import synchronize
from syncline.runtime.step import IGNORES
from syncline.timeline import Source, SourceKind, SpanKind, Timeline, TimelineBuilder

BUCKET_MB = 4.0
VOCABULARY = 256


@dataclass(frozen=True)
class OwnWork:
    """Processor seconds of one step, and the elements of each bucket in the order they become ready."""

    forward_s: float
    backward_s: tuple[float, ...]
    elements: tuple[int, ...]
    optimizer_s: float


@dataclass(frozen=True)
class Steps:
    """Wall seconds and losses of training steps, the bytes this rank sent in one, and one as a Timeline of this rank.

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
    DDP then is float32 through the runtime.
    """

    def __init__(self, model: Mapping[str, int], rank: int, send_Bps: float | None = None) -> None:
        self.width, self.depth = int(model.get("width", 256)), int(model.get("depth", 4))
        self.batch, self.length = int(model.get("batch", 2)), int(model.get("length", 64))
        self.rank, self.send_Bps = rank, send_Bps
        torch.set_num_threads(1)
        self._text = _text()

    def work(self, repeats: int = 3) -> OwnWork:
        """Measure one rank's own work, with nothing sent."""
        model, optimizer = self._fresh()
        marks: list[tuple[float, int]] = []

        def hook(state: object, bucket: Any) -> torch.futures.Future[torch.Tensor]:
            marks.append((time.thread_time(), bucket.buffer().numel()))
            done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
            done.set_result(bucket.buffer())
            return done

        hook.__annotations__.clear()
        model.register_comm_hook(None, hook)
        found = []
        for step in range(repeats + 2):
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
        steady = found[2:]  # buckets are rebuilt after the first step
        middle = sorted(range(len(steady)), key=lambda i: sum(steady[i][1]))[len(steady) // 2]
        forward, backward, last = steady[middle]
        return OwnWork(forward, tuple(backward), tuple(size for _, size in marks), last)

    def cores(self, group: Group, repeats: int = 4) -> float:
        """Return how many processors all ranks together really got while all worked: others may want them too."""
        torch.manual_seed(0)
        model = ByteGpt(self.width, self.depth, self.length)
        model(self._batch(0)).backward()
        group.barrier()
        wall, own = time.perf_counter(), time.process_time()
        for step in range(repeats):
            model(self._batch(step)).backward()
        table = group.numbers([time.process_time() - own, time.perf_counter() - wall])
        return float(table[:, 0].sum() / table[:, 1].max())

    def train(self, synchronisation: str, steps: int, warm_up: int = 3) -> Steps:
        """Train with plain DDP ("ddp") or through a codec, and return what the steps after the warm-up took."""
        model, optimizer = self._fresh()
        codec = codec_of(synchronisation, self.send_Bps)
        handle = None if codec is None else synchronize(model, codec=codec, check_every=0, send_Bps=self.send_Bps)
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
        return ddp, torch.optim.AdamW(ddp.parameters(), lr=3e-4)

    def _batch(self, step: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(1000 * step + self.rank)
        start = torch.randint(0, len(self._text) - self.length - 1, (self.batch,), generator=generator)
        return torch.stack([self._text[s : s + self.length + 1] for s in start.tolist()]).long()


def codec_of(synchronisation: str, send_Bps: float | None) -> str | None:
    """Return the codec of a synchronisation; None: plain DDP, by the backend's own all-reduce."""
    if synchronisation != "ddp":
        return synchronisation
    return None if send_Bps is None else "fp32"


def codec_times(name: str, num_elements: int, repeats: int = 3) -> dict[str, float]:
    """Return the processor seconds of one element, encoded and decoded-and-added, as the runtime calls them."""
    known = scheme(name)
    count = max(4096, min(num_elements, 1 << 20))
    values = torch.randn(count).numpy()
    payload = torch.empty(known.wire_bytes(count), dtype=torch.uint8).numpy()
    residual = torch.zeros(count).numpy()
    state = known.new_state(count)
    out = torch.zeros(count).numpy()
    times = []
    for _ in range(repeats + 1):
        began = time.thread_time()
        known.encode(values, payload, state, residual)
        coded = time.thread_time()
        known.decode(payload, out, add=True)
        times.append((coded - began, time.thread_time() - coded))
    encode, decode = (sorted(row[k] for row in times[1:])[repeats // 2] for k in (0, 1))
    return {"encode_s": encode / count, "decode_s": decode / count}


def network_time(group: Group, size_bytes: int) -> dict[str, float]:
    """Return the processor seconds of one byte and of one message, both ends together, by the backend's own ring."""
    small, large = torch.zeros(1), torch.zeros(size_bytes // 4)
    found = {}
    for name, tensor, count in (("small", small, 20), ("large", large, 3)):
        dist.all_reduce(tensor)
        group.barrier()
        began = time.process_time()
        for _ in range(count):
            dist.all_reduce(tensor)
        spent = group.numbers([(time.process_time() - began) / count]).sum()
        found[name] = float(spent)
    size = group.size
    messages = 2 * (size - 1) * size
    moved = messages * size_bytes / size
    return {
        "message_s": found["small"] / messages,
        "byte_s": max(0.0, found["large"] - found["small"]) / moved,
    }


def _text() -> torch.Tensor:
    """Return real text: the source of some of Python's standard library."""
    import argparse
    import inspect
    import tarfile
    import typing

    text = "".join(inspect.getsource(module) for module in (argparse, tarfile, typing, inspect))
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
