"""Rehearsals: jobs read with clear errors, a small one run on a real lab, and what is said of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from syncline.cli.shell.app import run
from syncline.describe.plain import plain
from syncline.errors import DescriptionError, LabError
from syncline.fabric import load
from syncline.lab import Lab
from syncline.rehearsal.job import Model, RehearsalJob, load_job

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
        ("repeats: 1\n", "must be at least 3"),
    ],
)
def test_a_wrong_job_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    with pytest.raises(DescriptionError, match=message) as caught:
        load_job(path)
    assert str(path) in caught.value.where


def test_names_of_codecs_are_written_one_way() -> None:
    assert RehearsalJob(synchronisations=("ddp", "powersgd:2")).synchronisations == ("ddp", "powersgd:rank=2")


@pytest.mark.slow
def test_a_small_rehearsal_predicts_what_it_then_measures(namespaces: None) -> None:
    from syncline.rehearsal.rehearse import rehearse
    from syncline.report.page.rehearse import rehearsal_page
    from syncline.report.text.rehearse import rehearsal_lines

    job = RehearsalJob(
        algorithms=("ring", "halving-doubling"),
        sizes=(1 << 20,),
        calibrate_on=(1 << 18, 1 << 19, 1 << 21),
        repeats=3,
        model=Model(width=64, depth=1, batch=1, length=16),
        synchronisations=("ddp", "int8"),
        steps=3,
        train_steps=2,
    )
    found = rehearse(str(FLAT), job, scale=0.1, hosts=2)
    assert (found.num_ranks, found.scale) == (2, 0.1)
    assert len(found.operations) == 8
    # Wide on purpose: this machine may be busy. The tight figures are kept by benchmarks/rehearsal.py.
    assert all(abs(row.gap) < 1 for row in found.operations if row.scored)
    by_name = {row.synchronisation: row for row in found.steps}
    assert by_name["int8"].wire_bytes < 0.3 * by_name["ddp"].wire_bytes
    assert by_name["int8"].loss == pytest.approx(by_name["ddp"].loss, rel=0.02)
    lines = rehearsal_lines(found)
    assert lines[0].startswith("use ")
    assert any(line.startswith("largest gap: ") for line in lines)
    assert plain(found.to_json())["operation_gap"]["scored"] >= 1
    # Shown: both programs and the step, predicted and run, with the links that carried them.
    assert [shown.name for shown in found.shown[:2]] == ["ring 1 MiB", "halving-doubling 1 MiB"]
    for shown in found.shown:
        assert shown.predicted.num_ranks == shown.measured.num_ranks == 2
        assert len(shown.measured.samples) > 0
    ring = found.shown[0]
    assert set(ring.measured.links.names) == set(ring.predicted.links.names)
    # Each of two ranks sends 1 MiB over its own link and receives as much; TCP adds headers, and acknowledgements.
    assert 1.0 < ring.measured.link_use().size_bytes.sum() / (4 * (1 << 20)) < 1.1
    assert found.links is not None
    page = rehearsal_page(found, lines)
    assert page.count("background:var(--predicted)") == page.count("background:var(--measured)") == 2 + 2
    assert page.count("what every rank does, predicted above measured") == 3
    assert page.count("in use over time") >= 4
    assert "http" not in page
    assert len(page) < 2_000_000


def test_without_namespaces_a_rehearsal_goes_over_loopback_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    from syncline.rehearsal.rehearse import _open

    def refuse(self: Lab) -> Lab:
        raise LabError("user namespaces are not allowed here.")

    monkeypatch.setattr(Lab, "open", refuse)
    with _open(str(FLAT), 0.1, None, False) as stage:
        assert stage.is_loopback
        assert stage.notes[0] == "no lab can be made here: user namespaces are not allowed here"
        assert "each held to 100 Mb/s by the runtime itself" in stage.notes[1]
        assert stage.send_Bps() == [12.5e6] * 4
        assert stage.wiring.links(0, 3) == (0,)
    # What is wrong with the description is no reason to go elsewhere.
    with pytest.raises(LabError, match="has 4 hosts, not 9"), _open(str(FLAT), 0.1, 9, False):
        pass


@pytest.mark.slow
def test_a_rehearsal_over_loopback_is_held_to_its_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="a rehearsal runs PyTorch")
    job = tmp_path / "job.yaml"
    job.write_text(
        "algorithms: [ring]\nsizes: [256KiB]\ncalibrate_on: [64KiB, 96KiB, 128KiB, 192KiB, 384KiB]\nrepeats: 3\n"
        "model: {width: 64, depth: 1, batch: 1, length: 16}\nsynchronisations: [ddp, int8]\nsteps: 2\ntrain_steps: 0\n"
    )
    page = tmp_path / "page.html"
    given = [str(FLAT), str(job), "--loopback", "--hosts", "2", "--scale", "0.05", "--html", str(page), "--json"]
    assert run(["rehearse", *given]) == 0
    said = capsys.readouterr()
    assert said.err.startswith("ranks talk over loopback, each held to 50 Mb/s by the runtime itself")
    found = json.loads(said.out)
    assert found["network"] == "loopback"
    # No faster than the rate, which a bucket of 20 kB may be ahead of; slower where the machine is busy.
    for row in found["operations"]:
        assert row["measured_s"] >= (row["size_bytes"] - 2 * 20_000) / 6.25e6
    assert [row["synchronisation"] for row in found["steps"]] == ["ddp", "int8"]
    assert "ranks over loopback, each held to its rate by the runtime" in page.read_text()
