from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from syncline.codec.codec import Codec
from syncline.errors import FabricError, FileError, NotProvedError, ProgramError
from syncline.fabric import ClusterSpec, Fabric, build
from syncline.program import Program, ProgramStep, VendorStep, lower, rail_aware, vendor
from syncline.program.files import load, save
from syncline.program.replay import replay
from syncline.schedule import Collective, Kind, hierarchical, verify


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    return build(ClusterSpec.model_validate({"hosts": 4, "host": "4 x H100", "network": "leaf-spine NDR"}))


@pytest.fixture
def program(fabric: Fabric) -> Program:
    mine = lower(verify(hierarchical((4, 4))), rail_aware(fabric), Codec("fp8", 0.5, encode_Bps=1e11))
    return mine.then(vendor(Collective(Kind.ALL_GATHER, 16), rail_aware(fabric)))


def test_a_program_comes_back_as_it_was(program: Program, fabric: Fabric, tmp_path: Path) -> None:
    path = tmp_path / "program.json"
    save(program, path)
    again = load(path, fabric)
    assert again.to_json() == program.to_json()
    assert (again.placement.device == program.placement.device).all()
    step, other = again.steps
    assert isinstance(step, ProgramStep) and step.codec == Codec("fp8", 0.5, encode_Bps=1e11)
    assert isinstance(other, VendorStep) and other.collective == Collective(Kind.ALL_GATHER, 16)
    first = Program("first", again.steps[:1], again.placement)
    after = replay(first, {rank: np.full(64, rank) for rank in range(16)}, 64)
    assert all((after[rank] == 120).all() for rank in range(16))


def test_a_file_that_lies_about_its_schedule_is_not_proved(program: Program, fabric: Fabric, tmp_path: Path) -> None:
    path = tmp_path / "program.json"
    save(program, path)
    value = json.loads(path.read_text())
    value["steps"][0]["schedule"]["collective"]["kind"] = "all_gather"
    path.write_text(json.dumps(value))
    with pytest.raises((NotProvedError, ProgramError)):
        load(path, fabric)


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("{", FileError, "is not JSON text"),
        ("[]", ProgramError, 'a program file says "format"'),
        ('{"format": "syncline program 1"}', ProgramError, "bad.json is not a program: 'devices'"),
        ('{"format": "syncline program 1", "devices": ["x"], "helpers": []}', FabricError, 'no device "x"'),
    ],
)
def test_what_is_no_program_is_one_clear_error(
    text: str, error: type[Exception], words: str, fabric: Fabric, tmp_path: Path
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(error, match=words):
        load(path, fabric)


def test_a_missing_file_is_named(fabric: Fabric, tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"cannot read .*none.json: No such file or directory"):
        load(tmp_path / "none.json", fabric)
