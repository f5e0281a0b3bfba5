"""`syncline rehearse` and `syncline calibrate`: what they refuse, before anything is built."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncline.cli.shell.app import run
from syncline.fabric import load
from syncline.rehearsal.calibrate import HostCalibration, write_calibrated
from syncline.sim.emulate.emulation import HostCosts, costs_of
from syncline.sim.emulate.host_fit import Fit

FLAT = Path(__file__).parent.parent.parent / "examples" / "lab-flat.yaml"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rehearse", "no-such-cluster"], "no-such-cluster"),
        (["rehearse", str(FLAT), "no-such-job.yaml"], 'there is no file "no-such-job.yaml"'),
        (["rehearse", str(FLAT), "--html", "no/such/folder/page.html"], 'there is no folder "no/such/folder"'),
        (["calibrate", str(FLAT), "--out", "no/such/folder/c.yaml"], 'there is no folder "no/such/folder"'),
        (["calibrate", str(FLAT), "--sizes", "1 potato"], "potato"),
    ],
)
def test_what_cannot_be_is_refused_at_once(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "Traceback" not in said


def test_a_calibrated_cluster_file_remembers_its_costs_and_their_error(tmp_path: Path) -> None:
    import numpy as np

    spec = load(FLAT).spec
    fitted = Fit(HostCosts(3.21e-4, 1.5e-5, 1.36e-9, 4e-3, 0.985), np.array([0.01, -0.03, 0.02]))
    path = tmp_path / "calibrated.yaml"
    write_calibrated(spec, HostCalibration(fitted, (), 4), "a lab, 1MiB", path)
    again = load(path)
    assert costs_of(again.spec) == fitted.costs
    assert again.spec.calibration is not None
    assert (again.spec.calibration.median_error, again.spec.calibration.worst_error) == (0.02, 0.03)
    assert again.num_hosts == 4
    assert costs_of(spec) is None
