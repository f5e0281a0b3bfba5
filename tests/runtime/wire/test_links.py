"""Which transport carries messages where none is named, and what is refused."""

from __future__ import annotations

import pytest
import torch

from syncline.errors import SynchronizationError
from syncline.runtime.sync.settings import Settings
from syncline.runtime.wire import links
from syncline.runtime.wire.links import _transport

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")


def test_a_gpu_gets_nccls_collectives_or_the_native_wire_and_a_processor_gloo() -> None:
    assert _transport(Settings(), True, GPU) == "collectives"
    assert _transport(Settings(), False, GPU) == "native"
    assert _transport(Settings(), False, CPU) == "point-to-point"
    assert _transport(Settings(send_Bps=1e6), False, GPU) == "point-to-point"
    assert _transport(Settings(transport="native"), False, CPU) == "native"


def test_without_the_native_wire_gloo_carries_what_lies_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "is_there", lambda: False)
    assert _transport(Settings(), False, GPU) == "point-to-point"
    with pytest.raises(SynchronizationError, match='transport="native" is not built on this system'):
        _transport(Settings(transport="native"), False, CPU)


@pytest.mark.parametrize("transport", ["native", "collectives"])
def test_only_messages_through_gloo_are_held_back(transport: str) -> None:
    with pytest.raises(SynchronizationError, match='Use transport="point-to-point"'):
        _transport(Settings(transport=transport, send_Bps=1e6), False, CPU)
