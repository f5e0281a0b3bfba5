"""Whether a codec leaves training as it is: averages and gradient norms beside dense ones, and the loss, now and then.

Steps are counted while a choice is held. Of every `GUARD_STEPS` the last but one keeps a stretch of one bucket, to be
averaged dense too. The last one is averaged dense as a whole where that costs little enough; the norm of its gradient
then stands beside those of the steps before. Nothing here talks to other ranks: `auto.py` gathers every rank's row and
hands all of them in, so that every rank judges alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import torch

from syncline.describe.plain import JsonObject
from syncline.runtime.sync.bucket import Order

GUARD_STEPS = 50
DENSE_SHARE = 0.01
"""Dense steps may make training this much longer; where they are dear they are rarer."""
SAMPLE_ELEMENTS = 1 << 16
# How far one average may be from the dense one, relative to it. With error feedback a single average may be far off,
# as what it lacks comes later; it must not grow beyond what it averages.
ERROR_LIMIT, ERROR_LIMIT_OWING = 0.1, 3.0
NORM_STEPS = 8
NORM_LIMIT = 3.0
"""How many times longer or shorter gradients may be than dense ones, over `NORM_STEPS` steps, twice running: a batch
that is unlike the others makes a gradient many times as long as they do."""
LOSS_LIMIT, LOSS_SIGMAS = 0.05, 4.0
"""By how much its mean over `GUARD_STEPS` must be above the lowest so far: a share of it, and of its noise, both."""


class Guard:
    """What this rank keeps of the steps since the last judgement; `dense`: this step goes without any codec."""

    def __init__(self) -> None:
        self.dense = False
        self._compares = False
        self._count = 0
        self._num_buckets = 1
        self._lowest: tuple[float, float] | None = None
        self._suspected = 0
        self._forget()

    def observe(self, loss: torch.Tensor | float) -> None:
        """Keep a step's loss."""
        self._losses.append(torch.as_tensor(loss).detach().reshape(()))

    def rest(self) -> None:
        """Begin to count anew: no choice is held."""
        self.dense = self._compares = False
        self._count = 0
        self._forget()

    def next(self, dense_extra: float) -> bool:
        """Count a step that is over and prepare for the next; return whether it is time to judge.

        `dense_extra` is by how many steps a dense step is longer than one as held; zero: as held they are dense.
        """
        self._count += 1
        turn, place = divmod(self._count, GUARD_STEPS)
        every = max(1, math.ceil(dense_extra / (DENSE_SHARE * GUARD_STEPS)))
        self._compares = dense_extra > 0 and turn % every == every - 1
        self.dense = self._compares and place == GUARD_STEPS - 1
        return place == 0

    def watch(self, order: Order, owing: bool | None) -> Order:
        """Return the order of a bucket that is looked at before it is done, if this is a step for that.

        `owing`: the codec keeps its error; None: it makes none.
        """
        turn, place = divmod(self._count, GUARD_STEPS)
        self._num_buckets = max(self._num_buckets, order.index + 1)
        looks: list[Callable[[], None]] = []
        if self.dense:
            looks.append(lambda: self._dense_norms.append(_norm(order.buffer)))
        elif self._compares and place >= GUARD_STEPS - 1 - NORM_STEPS:
            looks.append(lambda: self._norms.append(_norm(order.buffer)))
        if owing is not None and place == GUARD_STEPS - 2 and order.index == turn % self._num_buckets:
            before = _stretch(order.buffer)
            looks.append(lambda: self._samples.append((before, _stretch(order.buffer), owing)))
        if not looks:
            return order

        def done(failure: BaseException | None) -> None:
            for look in looks:
                look()
            order.done(failure)

        return replace(order, done=done)

    def row(self, average: Callable[[torch.Tensor], None]) -> JsonObject:
        """Return what was seen since the last judgement, and forget it; every rank averages when one does."""
        found: JsonObject = {"norm": self._norm_ratio(), "error": 0.0, "limit": ERROR_LIMIT, **self._loss_row()}
        for dense, got, owing in self._samples:
            average(dense)
            error = float((got - dense).norm() / dense.norm().clamp_min(1e-30))
            found |= {"error": _finite(error, 0.0), "limit": ERROR_LIMIT_OWING if owing else ERROR_LIMIT}
        self._forget()
        return found

    def judge(self, rows: Sequence[Mapping[str, Any]]) -> str:
        """Return what has drifted on any rank, in a few words; nothing where nothing has."""
        error, limit = max((row["error"], row["limit"]) for row in rows)
        if error > limit:
            return f"averages were {error:.2g} from the dense ones (at most {limit:.2g})"
        norm = self._drifted_norm([row["norm"] for row in rows if row["norm"] > 0])
        if norm:
            return f"gradients were {norm:.2g} times as long as a dense one (at most {NORM_LIMIT:g} times or a third)"
        return self._judge_loss([row for row in rows if row["losses"]])

    def _drifted_norm(self, norms: Sequence[float]) -> float:
        """Return the norm of a rank that is too far from 1, on the side it was on the last time; 0 where none is."""
        if not norms:
            return 0.0
        norm = max(norms) if max(norms) > NORM_LIMIT else min(norms)
        side = int(norm > NORM_LIMIT) - int(norm < 1 / NORM_LIMIT)
        before, self._suspected = self._suspected, side
        return norm if side and side == before else 0.0

    def _judge_loss(self, rows: Sequence[Mapping[str, Any]]) -> str:
        if not rows:
            return ""
        loss = fmean(row["loss"] for row in rows)
        noise = math.hypot(*(row["noise"] for row in rows)) / len(rows)
        if self._lowest is None or loss <= self._lowest[0]:
            self._lowest = (loss, noise) if math.isfinite(loss) else None
            return "" if self._lowest else f"the loss is {loss}"
        lowest, its_noise = self._lowest
        if loss - lowest <= max(LOSS_LIMIT * abs(lowest), LOSS_SIGMAS * math.hypot(noise, its_noise)):
            return ""
        self._lowest = None
        return f"the loss rose from {lowest:.4g} to {loss:.4g}"

    def _loss_row(self) -> JsonObject:
        """Return the mean loss with its noise; one batch that overflows is no drift."""
        losses = torch.stack(self._losses).double() if self._losses else torch.zeros(1)
        usable = losses[losses.isfinite()]
        losses = usable if len(usable) else losses
        spread = float(losses.std()) if len(losses) > 1 else 0.0
        return {"losses": len(self._losses), "loss": float(losses.mean()), "noise": spread / math.sqrt(len(losses))}

    def _norm_ratio(self) -> float:
        """Return how long gradients were beside the dense one, root mean square; 0 where there is none to compare."""
        dense, coded = (math.fsum(float(norm) ** 2 for norm in norms) for norms in (self._dense_norms, self._norms))
        return _finite(math.sqrt(coded / NORM_STEPS / dense), 0.0) if dense > 0 else 0.0

    def _forget(self) -> None:
        self._samples: list[tuple[torch.Tensor, torch.Tensor, bool]] = []
        self._norms: list[torch.Tensor] = []
        self._dense_norms: list[torch.Tensor] = []
        self._losses: list[torch.Tensor] = []


def _norm(buffer: torch.Tensor) -> torch.Tensor:
    norm: torch.Tensor = torch.linalg.vector_norm(buffer.detach(), dtype=torch.float32)
    return norm


def _stretch(buffer: torch.Tensor) -> torch.Tensor:
    return buffer[:SAMPLE_ELEMENTS].detach().to(torch.float32).clone()


def _finite(value: float, otherwise: float) -> float:
    """Return a number that can be judged: steps that overflowed, and were skipped or passed on, say nothing."""
    return value if math.isfinite(value) else otherwise
