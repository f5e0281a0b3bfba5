from __future__ import annotations

import pytest

from syncline.errors import CostError
from syncline.plan.cost.storage import state_bytes, storage_need


def test_rates_by_hand() -> None:
    need = storage_need(512, 1000, 110e3, state_bytes=state_bytes(70e9), write_s=10, restore_s=100)
    assert need.read_Bps == pytest.approx(56.32e9)
    assert need.write_Bps == pytest.approx(98e9)
    assert need.restore_Bps == pytest.approx(9.8e9)
    assert need.to_json()["peak_Bps"] == need.write_Bps


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(CostError, match="not be negative"):
        storage_need(512, -1, 4)
    with pytest.raises(CostError, match="times must be positive"):
        storage_need(512, 1, 4, write_s=0)
