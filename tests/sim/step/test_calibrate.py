"""Multipliers from measured steps: they explain what was given and keep their priors elsewhere; profiles are files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from syncline.errors import DescriptionError, SimulationError, UsageError
from syncline.fabric.catalog import load_catalog
from syncline.sim.profile import MeasuredStep, SystemProfile, load_profile, save_profile, split_words
from syncline.sim.step.build import build_case
from syncline.sim.step.calibrate import SIGMA, Multipliers, Observation, StepCalibration, calibrate, check_plausible
from syncline.sim.step.case import Case
from syncline.sim.step.constants import default_constants
from syncline.sim.step.cost import step_cost
from syncline.sim.step.machine import Machine, machine_of
from syncline.workload.job import Job
from syncline.workload.read_job import load_job


@pytest.fixture(scope="module")
def machine() -> Machine:
    catalog = load_catalog()
    return machine_of(catalog.host("dgx-h100"), catalog.link("NDR"), 64)


def case_of(machine: Machine, model: str = "llama3-70b", **split: int) -> Case:
    job = load_job({"model": model, "batch": {"global": 512, "sequence": 8192}, "parallel": split, "gpus": 64})
    return build_case(job.on(64), machine)


def total_s(case: Case, multipliers: Multipliers | None = None) -> float:
    return float(step_cost(case, (multipliers or Multipliers()).on(default_constants())).total)


def test_multipliers_of_one_change_nothing(machine: Machine) -> None:
    assert Multipliers().on(default_constants()) == default_constants()


def test_each_multiplier_changes_its_own_constants_by_its_own_factor() -> None:
    """A time doubles with its multiplier; an efficiency, by which times are divided, halves."""
    shipped = {**asdict(default_constants().fitted), **asdict(default_constants().held)}
    factors = {
        "products": {"e_gemm": 1 / 2, "c_att": 2},
        "attention": {"e_attn": 1 / 2, "c_att": 1 / 2},
        "memory": {"c_mem": 2},
        "exchange": {"e_nvl": 1 / 2, "e_net": 1 / 2, "tp_call_s": 2, "library": 2, "ring_hop_s": 2, "per_doubling": 2},
        "host": {"t_host": 2, "launch_eager_s": 2, "launch_fused_s": 2, "step_s": 2, "pause_s": 2},
    }
    for name, changed in factors.items():
        slowed = Multipliers(**{name: 2.0}).on(default_constants())
        constants = {**asdict(slowed.fitted), **asdict(slowed.held)}
        ratios = {key: constants[key] / shipped[key] for key in shipped if constants[key] != shipped[key]}
        assert ratios == pytest.approx(changed), name


@pytest.mark.parametrize("name", list(asdict(SIGMA)))
def test_each_multiplier_makes_a_step_longer(machine: Machine, name: str) -> None:
    experts = case_of(machine, "mixtral-8x7b", tp=2, pp=2, ep=8)
    assert total_s(experts, Multipliers(**{name: 1.2})) > total_s(experts)


def run(own: float, model: str = "llama3-70b", split: str = "tp4", precision: str = "bf16") -> MeasuredStep:
    return MeasuredStep(
        job="a", model=model, gpus=64, precision=precision, split=split, measured_s=4.6, predicted_s=4.3, own=own,
        source="train.log",
    )  # fmt: skip


def job_of(model: str = "llama3-70b", **split: int) -> Job:
    return load_job({"model": model, "batch": {"global": 512, "sequence": 8192}, "parallel": split, "gpus": 64}).on(64)


def test_a_measured_step_is_reproduced_and_other_splits_and_models_follow_less_and_less(machine: Machine) -> None:
    given = job_of(tp=4, pp=4)
    case = build_case(given, machine)
    found = calibrate(StepCalibration(), case, Observation(1.2 * total_s(case)))
    assert found.multipliers == Multipliers() and found.own == pytest.approx(
        np.log(1.2), rel=0.05
    )  # what comes once a step stays
    measured = run(found.own, split=split_words(given))
    profile = SystemProfile("here", "H100-SXM5-80GB", found, (measured,))
    again = float(step_cost(case, profile.constants(given, 64)).total)
    assert again == pytest.approx(1.2 * total_s(case), rel=0.01)
    itself, split, model = (
        profile.learnt(job, 64)[0] for job in (given, job_of(tp=8, pp=2), job_of("llama3-8b", tp=2))
    )
    assert found.own * 0.99 < itself and 0.9 * found.own < split < itself and 0.3 * found.own < model < split


def test_what_was_measured_makes_its_neighbours_surer() -> None:
    nothing, one = SystemProfile("here", "x"), SystemProfile("here", "x", measured=(run(0.1),))
    two = SystemProfile("here", "x", measured=(run(0.1), run(0.12, split="tp8")))
    sigma = [profile.learnt(job_of(tp=2, pp=8), 64)[1] for profile in (nothing, one, two)]
    assert sigma[0] > 2 * sigma[1] > sigma[2] and sigma[2] <= sigma[1]


def test_a_time_as_predicted_moves_nothing(machine: Machine) -> None:
    case = case_of(machine, tp=4, pp=4)
    found = calibrate(StepCalibration(), case, Observation(total_s(case)))
    assert found.own == pytest.approx(0.0, abs=1e-9) and found.multipliers == Multipliers()


def test_a_trace_sets_the_parts_that_one_time_cannot_tell_apart(machine: Machine) -> None:
    case = case_of(machine, tp=4, pp=4)
    truth = Multipliers(products=0.95, attention=1.5)
    constants = truth.on(default_constants())
    compute = float(step_cost(case, constants).compute)
    parts = {
        name: float(step_cost(case, Multipliers(**{name: 2.0}).on(constants)).compute) - compute
        for name in ("products", "attention")
    }
    blind = calibrate(StepCalibration(), case, Observation(total_s(case, truth)))
    traced = calibrate(StepCalibration(), case, Observation(total_s(case, truth), parts))
    assert traced.multipliers.attention == pytest.approx(1.5, rel=0.15)
    assert abs(traced.multipliers.attention - 1.5) < abs(blind.multipliers.attention - 1.5)
    assert traced.sigma()["attention"] < blind.sigma()["attention"]


@pytest.mark.parametrize(("measured", "word"), [(0.046, "1/100 of"), (4600.0, "1e\\+03 times")])
def test_a_wrong_unit_is_refused(measured: float, word: str) -> None:
    with pytest.raises(SimulationError, match=f"is {word} the 4.6 s predicted") as error:
        check_plausible(measured, 4.6)
    assert "unit" in error.value.hint


def profile_of(found: StepCalibration) -> SystemProfile:
    run = MeasuredStep(
        job="a", gpus=64, precision="bf16", split="tp4 pp4", measured_s=4.6, predicted_s=4.3, source="train.log"
    )
    return SystemProfile("here", "H100-SXM5-80GB", found, (run,))


def test_a_profile_is_read_as_it_was_written(machine: Machine, tmp_path: Path) -> None:
    case = case_of(machine, tp=4, pp=4)
    profile = profile_of(calibrate(StepCalibration(), case, Observation(1.1 * total_s(case))))
    save_profile(profile, tmp_path / "p.yaml")
    back = load_profile(tmp_path / "p.yaml")
    assert back.measured == profile.measured
    assert back.steps.multipliers.logs == pytest.approx(profile.steps.multipliers.logs, abs=1e-3)
    assert back.remarks("bf16") == ()
    assert back.remarks("fp8") == ("the profile was measured in bf16; fp8 products were not",)
    with pytest.raises(UsageError, match="measured on H100-SXM5-80GB, and this cluster has GB200"):
        back.check("GB200")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("format: syncline profile 2", "format: something", "not a profile"),
        ("products:", "product:", 'unknown key "product"'),
        ("gpus: 64", "gpus: 0", "gpus"),
        ("covariance:\n", "covariance: [[1.0]]\n  x:\n", "covariance|unknown key"),
    ],
)
def test_a_damaged_profile_is_one_error(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "p.yaml"
    save_profile(profile_of(StepCalibration()), path)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(DescriptionError, match=message):
        load_profile(path)


@pytest.mark.parametrize(("multiplier", "is_read"), [("0.01", False), ("0.011", True), ("99.9", True), ("100", False)])
def test_a_multiplier_lies_between_a_hundredth_and_a_hundred(tmp_path: Path, multiplier: str, is_read: bool) -> None:
    path = tmp_path / "p.yaml"
    save_profile(profile_of(StepCalibration()), path)
    text = path.read_text()
    path.write_text(text.replace("products: 1.0", f"products: {multiplier}"))
    assert path.read_text() != text
    if is_read:
        assert load_profile(path).steps.multipliers.products == float(multiplier)
        return
    with pytest.raises(DescriptionError, match="products"):
        load_profile(path)
