"""What pipeline stages tell each other about their activations, when one of them is run at a time.

A stage of `torch.distributed.pipelining` learns the shape of its input from the stage before it, which was run before
it; where that one is not known yet (interleaved stages), activations are taken to keep their shape on the way. Stages
of torch 2.13 say so in messages of their own kind, those of 2.12 and before in a list of objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
import torch.distributed as dist

from syncline.previewing.capture.log import Log

Row = tuple[list[int], list[int], str, bool]
"""Shape, strides, type and whether it has a gradient, of one activation."""


class Answers:
    """What the stages of this rank pass on, and what those before them did."""

    def __init__(self, log: Log, known: dict[str, Any], heard: Callable[[], None]) -> None:
        self.log, self.known, self.heard = log, known, heard
        self.stages = 0  # of this rank
        self.outputs: dict[str, Any] = log.facts.setdefault("stages", {})
        self.last: list[Row] = []

    def sent(self, stage: int, tensors: Iterable[Any], rank: int) -> None:
        """Keep what a stage passes on; where it is the only one of its rank, the next rank can start."""
        self.last = [
            (list(t.shape), list(t.stride() if callable(t.stride) else t.stride), str(t.dtype).removeprefix("torch."),
             bool(t.requires_grad))
            for t in tensors
        ]  # fmt: skip
        self.outputs[str(stage)] = self.last
        if self.stages == 1:
            self.log.next_ranks.add(rank)
            self.heard()

    def of(self, stage: int) -> list[Row]:
        """Return what a stage of another rank passes on."""
        rows = self.known.get(str(stage))
        if rows is not None:
            return list(rows)
        if not self.last:
            raise RuntimeError(f"the activations of stage {stage} are not known: its rank was not run before")
        self.log.stand_in("input of a pipeline stage", "as the output of this rank's stage before it")
        return self.last


def prepare(log: Log, known: dict[str, Any], heard: Callable[[], None]) -> None:
    """Answer for the other stages; `known` holds the outputs of those that have been run.

    `heard` is called as soon as the next rank can start.
    """
    try:
        from torch.distributed.pipelining import stage as module
    except ImportError:  # a torch without pipelines
        return
    answers, stage = Answers(log, known, heard), cast(Any, module.PipelineStage)
    made = stage.__init__

    def counted(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        answers.stages += 1

    stage.__init__ = counted
    if hasattr(stage, "_recv_meta"):
        _by_messages(answers, stage)
    elif hasattr(stage, "_shape_inference"):
        _by_objects(answers, stage)


def _by_messages(answers: Answers, stage: Any) -> None:
    from torch.distributed.pipelining._utils import (
        InferenceMode,
        _derive_grad_metas,
        _StageBackwardMeta,
        _StageForwardMeta,
        _TensorMeta,
    )

    def vote(self: Any, has_backward: bool, received_acc: Any = None) -> Any:
        dynamic = InferenceMode.needs_dynamic(self._user_meta, has_backward)
        self._own_vote = torch.tensor([0 if dynamic else 1], dtype=torch.int32)
        return self._own_vote

    def sent(self: Any, meta: Any, dst_stage: int) -> None:
        if isinstance(meta, _StageForwardMeta):
            group = self.group or dist.group.WORLD
            next_rank = dist.get_global_rank(group, self.stage_index_to_group_rank[dst_stage])
            answers.sent(self.stage_index, meta.forward_metas, next_rank)

    def received(self: Any, src_stage: int) -> Any:
        if src_stage > self.stage_index:  # a gradient looks like what it is of
            return _StageBackwardMeta(backward_metas=_derive_grad_metas(self._stage_meta.outputs))
        rows = answers.of(src_stage)
        metas = tuple(_TensorMeta(torch.Size(s), tuple(t), getattr(torch, d), g) for s, t, d, g in rows)
        return _StageForwardMeta(forward_metas=metas)

    stage._warmup_forward_vote = vote
    stage._warmup_backward_result = lambda self, received_result=None: self._own_vote
    stage._send_meta, stage._recv_meta = sent, received


def _by_objects(answers: Answers, stage: Any) -> None:
    infer, put = stage._shape_inference, cast(Any, dist)

    def inferred(self: Any, *args: Any, **kwargs: Any) -> Any:
        def received(objects: list[Any], *_: Any, **__: Any) -> None:
            objects[0] = tuple(
                torch.empty_strided(shape, strides, dtype=getattr(torch, dtype), device="meta")
                for shape, strides, dtype, _ in answers.of(self.stage_index - 1)
            )

        def sent(objects: list[Any], dst: int, *_: Any, **__: Any) -> None:
            answers.sent(self.stage_index, objects[0], dst)

        kept = put.send_object_list, put.recv_object_list
        put.send_object_list, put.recv_object_list = sent, received
        try:
            return infer(self, *args, **kwargs)
        finally:
            put.send_object_list, put.recv_object_list = kept

    stage._shape_inference = inferred
