"""Rehearsals of a script: what is refused before anything runs, and one that is predicted, run and compared."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from syncline.cli.shell.app import run
from syncline.errors import LabError, SynclineError, UsageError
from syncline.fabric import load
from syncline.lab import Lab
from syncline.previewing.cpus import SharedCores
from syncline.previewing.launch import read_launch
from syncline.questions.rehearse import ScriptRehearsalAnswer, rehearse
from syncline.rehearsal import script as rehearsed
from syncline.rehearsal.script import rehearse_script
from syncline.sim.emulate.emulation import HostCosts

pytest.importorskip("torch", reason="a rehearsal runs PyTorch")
FLAT = str(Path(__file__).parents[2] / "examples" / "lab-flat.yaml")
HEAD = """
import torch, torch.distributed as dist
from torch import nn
dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(256, 256), nn.Linear(256, 256)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
LONELY = HEAD.replace("nn.parallel.DistributedDataParallel", "nn.Sequential").replace("dist.init", "# dist.init")
STEPS = """
for _ in range({steps}):
    model(torch.ones(64, 256)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.fixture(scope="module")
def namespaces() -> None:
    """Skip where labs cannot be made."""
    try:
        with Lab(load(FLAT), hosts=2):
            pass
    except LabError as error:
        pytest.skip(str(error))


def script(folder: Path, text: str) -> list[str]:
    (folder / "train.py").write_text(text)
    return ["torchrun", "--nnodes", "2", str(folder / "train.py")]


def test_more_ranks_than_the_cluster_has_are_refused_with_both_numbers(tmp_path: Path) -> None:
    command = ["torchrun", "--nnodes", "5", *script(tmp_path, HEAD)[3:]]
    with pytest.raises(UsageError, match="starts 5 ranks, 1 a host, but lab-flat has 4 hosts with room for 1"):
        rehearse_script(FLAT, command)


def test_a_script_is_not_rehearsed_over_loopback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rehearse", FLAT, "--loopback", "--", *script(tmp_path, HEAD)]) == 2
    said = capsys.readouterr().err
    assert "--loopback is for the stand-in" in said and "Traceback" not in said


def test_a_missing_script_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rehearse", FLAT, "--", "python", "absent.py"]) == 2
    assert 'there is no script "absent.py"' in capsys.readouterr().err


def test_where_no_lab_can_be_made_the_script_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise LabError("the kernel does not let this user make namespaces.")

    monkeypatch.setattr(rehearsed, "open_lab", refused)
    monkeypatch.setattr(rehearsed, "_predict", lambda *_: pytest.fail("it ran"))
    with pytest.raises(LabError, match="make namespaces"):
        rehearse_script(FLAT, script(tmp_path, HEAD))


def test_ranks_that_share_cores_are_told_of_before_the_run(tmp_path: Path) -> None:
    command = ["OMP_NUM_THREADS=1", *script(tmp_path, HEAD)]
    launch = read_launch(["OMP_NUM_THREADS=1", "torchrun", "--nnodes", "4", command[-1]], 1)
    (line,) = rehearsed._sharing(launch, 2)
    assert "4 ranks of 1 thread share 2 cores" in line and "50%" in line
    assert list(rehearsed._sharing(launch, 4)) == []


def test_what_else_runs_lengthens_work_and_is_said() -> None:
    busy = SharedCores(cores=2, ranks=4, threads=1, byte_s=0.0, costs=HostCosts(), others=1.5)
    assert busy.slower() == 3.0
    (line,) = rehearsed._others(SimpleNamespace(cores=busy, quiet_s=0.25))  # type: ignore[arg-type]
    assert "1.5 times" in line and "250 ms" in line


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD, "ended before an optimizer stepped"),
        (HEAD.replace("model =", 'torch.ones(1, device="cuda")\nmodel =') + STEPS.format(steps=40), "CUDA"),
        (LONELY + STEPS.format(steps=40), "sends nothing"),
    ],
)
def test_a_script_that_cannot_be_rehearsed_is_refused_with_its_reason(
    namespaces: None, tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(SynclineError, match=message):
        rehearse_script(FLAT, script(tmp_path, text), hosts=2)


@pytest.mark.slow
def test_too_few_steps_are_counted(namespaces: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = SharedCores(cores=2, ranks=2, threads=1, byte_s=0.0, costs=HostCosts())
    monkeypatch.setattr(rehearsed, "_predict", lambda *_: SimpleNamespace(cores=quiet, step_s=0.01))
    with pytest.raises(UsageError, match=r"trained [45] steps; a rehearsal needs 9"):
        rehearse_script(FLAT, script(tmp_path, HEAD + STEPS.format(steps=5)), hosts=2)


@pytest.mark.slow
def test_a_script_is_predicted_run_and_its_accounts_subtracted(namespaces: None, tmp_path: Path) -> None:
    answer = rehearse(FLAT, script(tmp_path, HEAD + STEPS.format(steps=200)), scale=0.05, hosts=2)
    assert isinstance(answer, ScriptRehearsalAnswer)
    found = answer.found
    assert found.ranks == 2 and found.rates_scaled_by == 0.05
    # Wide on purpose: this machine may be busy.
    assert 0.2 < found.predicted_s / found.measured_s < 5
    (only,) = found.collectives
    assert (only.operation, only.predicted_calls, only.calls) == ("all-reduce", 1, 1)
    assert found.account.before.source == "previewed" and found.account.after.source == "measured"
    wire_s = 4 * 2 * (256 * 256 + 256) / 6.25e6  # of two ranks each sends its gradient once, at 50 Mb/s
    assert only.predicted_s > 0.9 * wire_s and only.measured_s > 0.9 * wire_s
    assert answer.html().startswith("<!doctype html>")
