"""What pipeline stages tell each other about their activations, when one of them is run at a time.

A stage of `torch.distributed.pipelining` learns the shape of its input from the stage before it, which was run before
it; where that one is not known yet (interleaved stages), activations are taken to keep their shape on the way.
"""

from __future__ import annotations

from typing import Any

import torch

from syncline.preview.capture.log import Log


def prepare(log: Log, known: dict[str, Any]) -> None:
    """Answer for the other stages; `known` holds the outputs of those that have been run."""
    try:
        from torch.distributed.pipelining import stage as module
        from torch.distributed.pipelining._utils import (
            InferenceMode,
            _derive_grad_metas,
            _StageBackwardMeta,
            _StageForwardMeta,
            _TensorMeta,
        )
    except ImportError:  # a torch whose stages speak in another way
        return
    outputs: dict[str, Any] = log.facts.setdefault("stages", {})
    last: dict[str, Any] = {}

    def vote(self: Any, has_backward: bool, received_acc: Any = None) -> Any:
        dynamic = InferenceMode.needs_dynamic(self._user_meta, has_backward)
        self._own_vote = torch.tensor([0 if dynamic else 1], dtype=torch.int32)
        return self._own_vote

    def sent(self: Any, meta: Any, dst_stage: int) -> None:
        if isinstance(meta, _StageForwardMeta):
            last["metas"] = meta.forward_metas
            outputs[str(self.stage_index)] = [
                [list(m.shape), list(m.stride), str(m.dtype).removeprefix("torch."), m.requires_grad]
                for m in meta.forward_metas
            ]

    def received(self: Any, src_stage: int) -> Any:
        if src_stage > self.stage_index:  # a gradient looks like what it is of
            return _StageBackwardMeta(backward_metas=_derive_grad_metas(self._stage_meta.outputs))
        rows = known.get(str(src_stage))
        if rows is not None:
            metas: Any = tuple(_TensorMeta(torch.Size(s), tuple(t), getattr(torch, d), g) for s, t, d, g in rows)
        elif "metas" in last:
            log.stand_in("input of a pipeline stage", "as the output of this rank's stage before it")
            metas = last["metas"]
        else:
            raise RuntimeError(f"the activations of stage {src_stage} are not known: its rank was not run before")
        return _StageForwardMeta(forward_metas=metas)

    stage: Any = module.PipelineStage
    stage._warmup_forward_vote = vote
    stage._warmup_backward_result = lambda self, received_result=None: self._own_vote
    stage._send_meta, stage._recv_meta = sent, received
