"""What a Chakra trace tells a calibration, by hand: a product, attention, and an exchange that nothing hides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.workload.chakra_schema import Schema, stream

from syncline.errors import DescriptionError
from syncline.explaining.observed import observed_trace

SCHEMA = Schema("1.0")


def written(path: Path, *nodes: Any) -> Path:
    path.write_bytes(stream(SCHEMA.metadata(), *nodes))
    return path


def one_step(exchange_us: int = 500) -> list[Any]:
    """3 ms of products, 1 ms of attention, then an exchange."""
    device = SCHEMA.attribute("is_cpu_op", "bool", False)
    return [
        SCHEMA.node(0, "sm90_xmma_gemm_bf16", "COMP_NODE", device, duration_micros=3000),
        SCHEMA.node(1, "flash_fwd_kernel", "COMP_NODE", device, data_deps=[0], duration_micros=1000),
        SCHEMA.collective(2, "all_reduce", "ALL_REDUCE", 1 << 20, data_deps=[1], duration_micros=exchange_us),
    ]


def test_a_chakra_trace_sets_the_step_and_its_parts(tmp_path: Path) -> None:
    path = written(tmp_path / "trace.0.et", *one_step())
    seen = observed_trace(path, steps=None, pipelined=False)
    assert seen.step_s == pytest.approx(4.5e-3)
    assert seen.parts_s == pytest.approx({"products": 3e-3, "attention": 1e-3, "exchange": 0.5e-3})
    twice = observed_trace(path, steps=2, pipelined=True)
    assert twice.step_s == pytest.approx(seen.step_s / 2) and "exchange" not in twice.parts_s


def test_a_folder_and_a_prefix_name_the_same_trace(tmp_path: Path) -> None:
    path = written(tmp_path / "job.0.et", *one_step())
    alone = observed_trace(path, steps=1, pipelined=False)
    assert observed_trace(tmp_path / "job", steps=1, pipelined=False) == alone
    assert observed_trace(tmp_path, steps=1, pipelined=False) == alone


def test_a_trace_without_durations_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "made.0.et", SCHEMA.node(0, "gemm", "COMP_NODE"))
    with pytest.raises(DescriptionError, match="the trace has no durations"):
        observed_trace(path, steps=1, pipelined=False)
