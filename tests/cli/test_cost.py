"""`syncline cost` as its users meet it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from syncline.cli.shell import app
from syncline.planning.cost.prices import COLUMNS


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = app.run(["cost", *arguments])
    got = capsys.readouterr()
    return status, got.out, got.err


def test_one_screen_with_the_answer_first(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "h100-64-rail")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "h100-64-rail: 512 H100-SXM5-80GB in 64 hosts"
    assert lines[2].startswith("  answer     Own it: a GPU-hour costs $2.39 against $3.85 at Nebius, the cheapest rent")
    assert len(lines) <= 10
    assert max(len(line) for line in lines) <= 120
    assert "goodput 99.7% of llama3-70b on 512 GPUs" in out and "$3.85 rented (Nebius 8x H100 SXM, list price" in out
    status, more, err = run(capsys, "h100-64-rail", "--more")
    assert (status, err) == (0, "") and more.startswith("\n".join(lines[:-1]))
    for words in ("AWS p5.48xlarge", "11% of capital", "egress", "pue 1.25", "x PUE 1.25 x $0.08/kWh"):
        assert words in more


def test_json_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--step-time", "2.1s", "--tokens-per-step", "4M", "--steps", "250k", "--budget", "$2M", "--json")
    status, out, _ = run(capsys, "h100-64-rail", *arguments)
    data = json.loads(out)
    assert status == 0
    assert data["run"]["num_steps"] == 250_000
    assert data["owned"]["usd_per_gpu_hour"] == pytest.approx(2.3917, abs=1e-4)
    assert {row["cloud"] for row in data["rented"]} == {"AWS", "Azure", "GCP", "Lambda", "Nebius", "OCI"}
    assert data["charges"][0]["usd_per_token"] == pytest.approx(1.791e-7, rel=1e-3)
    assert 1_700_000 < data["budget"][0]["num_steps"] < 1_800_000


def test_options_may_stand_before_and_after_the_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    _, before, _ = run(capsys, "--years", "2", "h100-64-rail", "--json")
    _, after, _ = run(capsys, "h100-64-rail", "--years", "2", "--json")
    assert before == after
    assert json.loads(after)["owned"]["usd_per_year_by"]["hosts"] == 64 * 310_000 / 2


def test_files_and_options_are_shown_as_yours(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("years: 2\nhosts_per_fte: 32\n")
    row = "instance,Ours,x8,H100-SXM5-80GB,8,16,USD,hour,,2026-08,current,our contract,"
    (tmp_path / "p.csv").write_text(f"{','.join(COLUMNS)}\n{row}\n")
    files = ("--assumptions", str(tmp_path / "a.yaml"), "--prices", str(tmp_path / "p.csv"))
    status, out, _ = run(capsys, "h100-64-rail", *files, "--set", "rack_kW=20", "--set", "pue=1.5", "--more")
    assert status == 0
    assert "yours      years 2, pue 1.5, rack_kW 20, hosts_per_fte 32" in out
    assert "Rent it: a GPU-hour costs" in out
    assert "$2.00 at Ours" in out


def test_every_assumption_can_be_listed_with_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "h100-64-rail", "--sources")
    assert "EIA, US industrial average 2023" in out
    assert "arXiv 2506.14551" in out


def test_a_job_an_upgrade_and_a_commitment(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--cloud", "aws", "--discount", "0.3", "--step-time", "2.1s")
    upgrade = ("--upgrade-price", "500k", "--upgrade-step-time", "1.9s")
    _, out, _ = run(capsys, "h100-64-rail", *arguments, *upgrade, "--more")
    assert "committed, 30% off" in out
    assert "any use" in out
    assert "upgrade    owned: saves 9.5%" in out
    assert "pays back: 8.4 months" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--budget", "0"], "CostError: a budget of $0.00 buys nothing."),
        (["--budget", "-5"], "UsageError: --budget must be a positive number, got -5."),
        (["--budget", "lots"], "UsageError: --budget must be a positive number, got lots."),
        (["--set", "power_usd_per_kWh=-1"], "CostError: power_usd_per_kWh is -1; it must be at least 0."),
        (["--utilisation", "0"], "CostError: utilisation is 0.0; it must be above 0."),
        (["--years", "nan"], "CostError: years is nan; it must be a finite number."),
        (["--cloud", "nowhere"], 'CostError: no prices of a cloud "nowhere" in prices.csv.'),
        (["--steps", "5"], "UsageError: --steps needs the time of a step."),
        (["--step-time", "0s"], "CostError: the step time must be positive, got 0 s."),
        (["--step-time", "2s", "--steps", "0"], "CostError: the number of steps must be positive, got 0."),
        (["--step-time", "2s", "--tokens-per-step", "0"], "CostError: the tokens of a step must be positive, got 0."),
        (["--step-time", "fast"], 'UnitError: cannot read time "fast".'),
        (["--upgrade-price", "5"], "UsageError: --upgrade-price and --upgrade-step-time go together."),
        (
            ["--step-time", "2s", "--upgrade-price", "-5", "--upgrade-step-time", "1s"],
            "UsageError: --upgrade-price must be a positive number, got -5.",
        ),
        (["--set", "pue"], 'UsageError: --set "pue" has no value.'),
        (["--set", "pue=[1,2]"], "CostError: pue is [1, 2]; it must be a number."),
        (["--set", "years=yes"], "CostError: years is True; it must be a number or a name."),
        (["--set", "cloud=5"], "CostError: cloud is 5; it must be text."),
        (["--set", "pew=1"], 'CostError: there is no assumption "pew".'),
        (["--set", "reliability=luck"], 'CostError: no failure rate of "luck" in reliability.csv.'),
        (["--prices", "none.csv"], 'FileError: there is no file "none.csv".'),
        (["--assumptions", "none.yaml"], 'FileError: there is no file "none.yaml".'),
    ],
)
def test_what_cannot_be_is_one_clear_error(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    status, out, err = run(capsys, "h100-64-rail", *arguments)
    assert (status, out) == (2, "")
    assert err.splitlines()[0] == message
    assert "Traceback" not in err
    status, out, _ = run(capsys, "h100-64-rail", *arguments, "--json")
    assert status == 2
    assert json.loads(out)["error"] == message.split(":")[0]


def test_hardware_that_nobody_rents_or_sells(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "gb200-nvl72-pod")
    assert status == 0
    assert "A GPU-hour costs $2.82 to own. No cloud in prices.csv rents these GPUs." in out
    status, _, err = run(capsys, "tpu-v4-pod")
    assert status == 2
    assert err.startswith("CostError: no price is known for the host tpu-v4-host")


def test_a_set_assumption_is_not_lost_to_an_option_that_was_not_given(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "h100-64-rail", "--set", "years=2", "--json")
    assert {row["name"]: row["value"] for row in json.loads(out)["assumptions"]}["years"] == 2
    _, out, _ = run(capsys, "h100-64-rail", "--set", "years=2", "--years", "5", "--json")
    assert {row["name"]: row["value"] for row in json.loads(out)["assumptions"]}["years"] == 5


def test_a_job_that_never_gets_done_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    rarely = ("--set", "reliability=rsc-1", "--set", "checkpoint_interval_s=1e6")
    status, _, err = run(capsys, "eos", *rarely, "--step-time", "2s", "--steps", "5")
    assert status == 2
    assert err.startswith(
        "CostError: the job never gets done: an interruption every 6.41 h, but a checkpoint only every"
    )


def test_lines_between_sites_are_a_line_of_the_bill(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "two-sites-wan", "--more")
    assert status == 0
    assert "lines between sites" in out
