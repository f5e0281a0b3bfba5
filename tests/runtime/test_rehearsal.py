"""What a rehearsal measures of the exchange's own work, in one process."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
import torch

from syncline.runtime import rehearsal
from syncline.runtime.wire.memory_wire import MemoryWire


@pytest.mark.parametrize("codec", ["bf16", "int8", "sign"])
def test_every_stage_of_every_piece_is_measured_and_more_elements_cost_more(codec: str) -> None:
    small, large = rehearsal.stage_times(codec, [4096, 1 << 20], 3)
    for stages in (small, large):
        assert min(stages.send_s, stages.reduce_s, stages.collect_s) > 0
    assert large.send_s > small.send_s
    assert large.collect_s > small.collect_s


def test_what_a_wire_copies_is_not_the_exchanges_work(monkeypatch: pytest.MonkeyPatch) -> None:
    wait = MemoryWire.wait

    def dear(self: MemoryWire, tag: int, peer: int) -> None:
        wait(self, tag, peer)
        self.copying_s += 1e6

    monkeypatch.setattr(MemoryWire, "wait", dear)
    (stages,) = rehearsal.stage_times("int8", [4096], 2)
    assert stages.send_s > 0
    assert stages.reduce_s == stages.collect_s == 0.0


def test_after_dense_steps_the_optimizer_sees_what_a_codec_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = rehearsal.Trainer({"width": 64, "depth": 1, "batch": 1, "length": 16}, rank=0)
    shares: list[float] = []

    class Looking(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            gradients = [p.grad for group in self.param_groups for p in group["params"]]
            shares.append(sum(float((g != 0).sum()) for g in gradients) / sum(g.numel() for g in gradients))

    monkeypatch.setattr(rehearsal, "_optimizer", lambda model: Looking(model.parameters(), lr=0.1))
    assert trainer.optimizer_time("sign") >= 0
    dense, sparse = shares[: rehearsal.DENSE_STEPS], shares[rehearsal.DENSE_STEPS :]
    assert min(dense) > 0.5
    assert max(sparse) < 0.05
