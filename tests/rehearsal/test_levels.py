"""Rehearsing a hierarchy: levels that fit the hosts, and the outermost shard that the codec costs are measured on."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.program.test_overlap import step_s

from syncline.codec.names import scheme
from syncline.errors import BenchError, DescriptionError
from syncline.program.overlap import ExchangeCosts, StageCosts, Work
from syncline.rehearsal.job import RehearsalJob, load_job
from syncline.rehearsal.rehearse import _levels_note


def test_a_level_of_one_host_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("steps: 3\nlevels: [1]\n")
    with pytest.raises(DescriptionError, match="a level has two hosts or more, innermost first"):
        load_job(path)
    assert RehearsalJob(levels=(2, 4)).levels == (2, 4)


def test_levels_must_fit_the_hosts_and_are_told() -> None:
    (note,) = _levels_note((2, 2), 8)
    assert "float32 inside groups of 2 x 2 hosts, the codec across 2 of them" in note
    assert _levels_note((), 8) == ()
    for hosts in (4, 6):
        with pytest.raises(BenchError, match=f"{hosts} hosts cannot be divided into several groups of 2 x 2"):
            _levels_note((2, 2), hosts)


def test_what_is_measured_at_the_outermost_level_is_what_is_priced_there() -> None:
    pytest.importorskip("torch", reason="ranks of a rehearsal run PyTorch")
    from syncline.rehearsal.training import outermost

    elements = 100_000
    assert outermost(elements, ()) == elements
    shard = outermost(elements, (2, 2))
    work = Work(0.0, (0.0,), (elements,), 0.0)
    measured = {shard: StageCosts(1.0, 2.0, 4.0)}
    how = ExchangeCosts("int8", scheme("int8"), 0.0, 0.0, measured=measured, levels=(2, 2))
    assert step_s(work, how, 8, 1e12) == pytest.approx(7.0, rel=1e-3)


def test_a_rehearsal_that_is_killed_leaves_no_folder_behind() -> None:
    script = "\n".join([
        "import time", "from syncline.rehearsal.stage import _folder", "with _folder() as made:",
        "    print(made, flush=True)", "    time.sleep(600)",
    ])  # fmt: skip
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        assert folder.is_dir()
        process.kill()
    while folder.exists():
        time.sleep(0.05)
