"""Rehearsals: jobs read with clear errors, a small one run on a real lab, and what is said of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncline.bench.rehearsal.job import Job, Model, load_job
from syncline.errors import DescriptionError, LabError
from syncline.fabric import load
from syncline.lab import Lab

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
FLAT = EXAMPLES / "lab-flat.yaml"


@pytest.fixture(scope="module")
def namespaces() -> None:
    """Skip where labs cannot be made."""
    pytest.importorskip("torch", reason="a rehearsal runs PyTorch")
    try:
        with Lab(load(FLAT), hosts=2):
            pass
    except LabError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sizes: [1MiB]\ncalibrate_on: [1MiB, 2MiB]\n", "1048576 bytes is calibrated on and scored"),
        ("synchronisations: [ddp, gzip]\n", 'there is no codec "gzip"'),
        ("stepz: 3\n", 'unknown key "stepz"'),
        ("repeats: 1\n", "greater than or equal to 3"),
    ],
)
def test_a_wrong_job_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    with pytest.raises(DescriptionError, match=message) as caught:
        load_job(path)
    assert str(path) in caught.value.where


def test_names_of_codecs_are_written_one_way() -> None:
    assert Job(synchronisations=("ddp", "topk:keep=1%")).synchronisations == ("ddp", "topk:keep=0.01")


@pytest.mark.slow
def test_a_small_rehearsal_predicts_what_it_then_measures(namespaces: None) -> None:
    from syncline.bench.rehearsal.rehearse import rehearse
    from syncline.report.rehearsal_page import rehearsal_page
    from syncline.report.rehearsal_text import rehearsal_lines

    job = Job(
        algorithms=("ring", "halving-doubling"),
        sizes=(1 << 20,),
        calibrate_on=(1 << 18, 1 << 19, 1 << 21),
        repeats=3,
        model=Model(width=64, depth=1, batch=1, length=16),
        synchronisations=("ddp", "int8"),
        steps=3,
        train_steps=0,
    )
    found = rehearse(str(FLAT), job, scale=0.05)
    assert (found.num_ranks, found.scale) == (4, 0.05)
    assert len(found.operations) == 8
    # Wide on purpose: this machine may be busy. The tight figures are kept by benchmarks/rehearsal.py.
    assert all(abs(row.gap) < 0.3 for row in found.operations if row.scored)
    by_name = {row.synchronisation: row for row in found.steps}
    assert by_name["int8"].wire_bytes < 0.3 * by_name["ddp"].wire_bytes
    assert by_name["int8"].loss == pytest.approx(by_name["ddp"].loss, rel=0.02)
    lines = rehearsal_lines(found)
    assert lines[0].startswith("use ")
    assert any(line.startswith("largest gap: ") for line in lines)
    page = rehearsal_page(found, lines)
    assert page.count("<rect") == 2 * (2 + 2)
    assert found.to_json()["operation_gap"]["scored"] >= 1
