"""Data parallelism in every form beside tensor, sequence and pipeline axes, in every codec: replicas stay equal."""

from __future__ import annotations

import os
from functools import cache, partial
from typing import Any

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
import torch
from tests.distributed.cases import mesh_cases as cases
from tests.distributed.cases.fsdp2 import HAS_FSDP2, WHY_NOT
from tests.distributed.ranks import run_ranks

pytestmark = pytest.mark.skipif(not HAS_FSDP2, reason=WHY_NOT)
ON_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
DEVICES = ("cpu", pytest.param("cuda", marks=[pytest.mark.gpu, ON_GPU]))


@cache
def ran(device: str) -> list[dict[str, Any]]:
    return run_ranks(4, partial(cases.run, device=device, out=os.environ.get("SYNCLINE_GRID_FILE", "")))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("cell", "codec"),
    [(cell, codec) for cell in cases.CELLS for codec in (cases.FEW if "PP" in cell else cases.CODECS)],
)
def test_what_is_whole_on_an_axis_stays_equal_there(cell: str, codec: str, device: str) -> None:
    for got in ran(device):
        found = got[f"{cell} {codec}"]
        assert found["error"] == ""
        assert found["differ"] == []
        assert len(found["losses"]) == cases.STEPS
        assert abs(found["losses"][-1] - got[f"{cell} fp32"]["losses"][-1]) < 0.1


def test_replicas_of_shards_beside_an_axis() -> None:
    for got in run_ranks(8, partial(cases.run, num_ranks=8, codecs=("int8", "sign"))):
        assert [(found["error"], found["differ"]) for found in got.values()] == [("", [])] * 2


def test_what_is_not_right_on_a_mesh_is_named() -> None:
    for got in run_ranks(4, cases.wrong):
        assert 'differ on the axis "tp" at step 2: rank 1 is not like the others' in got["drift"] or got["rank"] > 1
        assert got["periodic"].startswith('DiLoCo does not work with the axis "tp" of this model\'s mesh yet')
        assert got["skip"].startswith('nan="skip" (and a scaler) does not work with codec "sign" on a mesh')
        assert "lr of AdamW, group 0, is 0.02 on rank 3 and 0.01 on the others." in got["lr"]
