"""Tables of collectives: no figure is ever cut, however narrow the screen."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from syncline.questions.simulated.rows import CollectiveRow
from syncline.report.text.simulate import sweep_table

ROW = CollectiveRow(
    size_bytes=8192,
    time_s=104.7e-6,
    low_s=77.06e-6,
    high_s=1.285e-3,
    low50_s=96.65e-6,
    high50_s=167.5e-6,
    algbw_Bps=78.3e6,
    busbw_Bps=156e6,
    wire_Bps=39.1e6,
    utilisation=0.001,
    algorithm="2x32x8 direct/halving-doubling/direct",
    limiting_link="group-00/switch-00 -> group-00/switch-01",
    method="folded flows",
    chunks=16,
    exact=False,
)


def printed(width: int, *, sure: bool) -> str:
    row = ROW if sure else replace(ROW, low_s=None, high_s=None, low50_s=None, high50_s=None)
    out = StringIO()
    Console(file=out, width=width).print(sweep_table([row], width))
    return out.getvalue()


@pytest.mark.parametrize("width", [44, 60, 80, 100, 120, 200])
@pytest.mark.parametrize("sure", [True, False])
def test_figures_are_whole_or_left_out(width: int, sure: bool) -> None:
    text = printed(width, sure=sure)
    assert "…" not in text and "104.7 us" in text and "0.156" in text
    assert ("77.06 us..1.285 ms" in text) == sure, "the interval stays as long as the time does"


def test_a_wide_screen_has_every_column() -> None:
    assert all(word in printed(200, sure=True) for word in ("50 % between", "wire", "util", "limiting link"))
    assert all(word in printed(200, sure=False) for word in ("chunks", "method", "wire"))
    assert "limiting link" in printed(80, sure=True) and "wire" not in printed(80, sure=True)
