from __future__ import annotations

import pytest

from syncline.codec.codec import RAW, Codec
from syncline.errors import ProgramError


def test_raw_costs_nothing() -> None:
    assert RAW.wire_ratio == 1
    assert RAW.host_s_per_byte() == 0


def test_both_directions_are_paid_for() -> None:
    assert Codec("fp8", 0.5, encode_Bps=1e9, decode_Bps=4e9).host_s_per_byte() == pytest.approx(1.25e-9)


def test_a_codec_that_sends_nothing_is_refused() -> None:
    with pytest.raises(ProgramError, match=r'codec "none" sends 0 bytes per byte; it must be above 0 and at most 4.'):
        Codec("none", 0)
    with pytest.raises(ProgramError, match="must encode and decode at a rate above 0"):
        Codec("stuck", 1, encode_Bps=0)
