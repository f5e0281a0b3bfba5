"""What a rehearsal measures of the exchange's own work, in one process."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")

from syncline.runtime import rehearsal
from syncline.runtime.wire.memory_wire import MemoryWire


@pytest.mark.parametrize("codec", ["bf16", "int8", "sign", "powersgd:rank=2"])
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
