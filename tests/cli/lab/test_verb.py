"""`syncline lab` as its users meet it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.lab.conftest import EXAMPLES, why_no_lab

from syncline.cli.shell import app
from syncline.errors import LabError
from syncline.lab.registry import RunningLab, Visit, running_labs
from syncline.timeline import load as load_timeline

FLAT = str(EXAMPLES / "lab-flat.yaml")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = app.run(["lab", *arguments])
    got = capsys.readouterr()
    return status, got.out, got.err


@pytest.fixture(scope="module")
def labs() -> None:
    if reason := why_no_lab():
        pytest.skip(reason)


def test_show_builds_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "show", FLAT)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "lab-flat: 4 hosts, 1 switch that bridges, 4 cables"
    assert lines[1] == "scale 0.5: 1 Gb/s becomes 500 Mb/s"
    assert lines[2].startswith("not emulated: links inside hosts")
    assert lines[5].split() == ["host-00", "eth0", "10.1.0.2/16", "leaf-00", "p0", "-", "1", "Gb/s", "500", "Mb/s", "-"]


def test_show_as_json_with_knobs(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--scale", "1/100", "--hosts", "2", "--set", "mtu_bytes=1500", "--set", "reroute_after_s=null")
    status, out, _ = run(capsys, "show", FLAT, *arguments, "--json")
    data = json.loads(out)
    assert status == 0
    assert (data["scale"], len(data["cables"])) == (0.01, 2)
    assert (data["profile"]["mtu_bytes"], data["profile"]["reroute_after_s"]) == (1500, None)


def test_run_passes_output_and_the_first_failure(labs: None, capsys: pytest.CaptureFixture[str]) -> None:
    script = 'echo out $RANK; echo err >&2; sleep 0.2; [ "$RANK" != 1 ] || exit 5; sleep 30'
    status, out, err = run(capsys, "run", FLAT, "--", "sh", "-c", script)
    assert status == 5
    assert sorted(out.splitlines()) == [f"[{i} host-0{i}] out {i}" for i in range(4)]
    assert "scale 0.5: 1 Gb/s becomes 500 Mb/s" in err
    assert "[2 host-02] err" in err


def test_run_as_json_with_faults_and_links(labs: None, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    record = tmp_path / "links.json"
    fault = "host-03:eth0 down at 100ms for 100ms"
    code = "import os, socket, time\nfor _ in range(9): socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(bytes(4000), ('10.1.0.2', 9)); time.sleep(0.05)"  # noqa: E501
    arguments = ("--fault", fault, "--links", "--record", str(record), "--ranks", "3", "--json")
    status, out, err = run(capsys, "run", FLAT, *arguments, "--", sys.executable, "-c", code)
    data = json.loads(out)
    assert (status, err, data["exit_code"]) == (0, "", 0)
    assert [rank["host"] for rank in data["ranks"]] == ["host-00", "host-01", "host-02"]
    events = [event["what"] for event in data["events"]]
    assert sorted(events) == ["begun", "ended", "rerouted", "rerouted"]
    assert (events[0], events[-1]) == (
        "begun",
        "rerouted",
    )  # on a busy machine the link is back before routes have moved
    carried = {row["link"]: row["size_bytes"] for row in data["links"]}
    assert carried["leaf-00 -> host-00/nic-0"] >= 9 * 4000
    assert load_timeline(record).metadata["cluster"] == "lab-flat"


def test_paths_are_the_kernels(labs: None, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = str(EXAMPLES / "lab-leaf-spine.yaml")
    status, out, _ = run(capsys, "paths", cluster)
    assert status == 0
    lines = [line.split() for line in out.splitlines()[1:]]
    assert len(lines) == 56
    assert {tuple(line[3:]) for line in lines if line[:2] == ["host-00", "host-01"]} == {("leaf-00",)}
    ways = {line[5] for line in lines if line[0] == "host-00" and line[1] > "host-03"}
    assert ways <= {"spine-00", "spine-01"}
    status, out, _ = run(capsys, "paths", FLAT, "--hosts", "2", "--json")
    data = json.loads(out)
    assert data["paths"][0]["names"] == ["host-00/nic-0 -> leaf-00", "leaf-00 -> host-01/nic-0"]


def test_check_measures_every_link(labs: None, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--scale", "0.05", "--hosts", "2", "--seconds", "0.1", "--tolerance")
    status, out, _ = run(capsys, "check", FLAT, *arguments, "0.15")
    assert status == 0
    assert "4 of 4 links as described" in out
    assert out.splitlines()[-1] == "verdict: the lab is as described"
    status, out, _ = run(capsys, "check", FLAT, *arguments, "0", "--json")
    data = json.loads(out)
    assert (status, data["ok"]) == (1, False)  # nothing is exact
    assert {row["link"] for row in data["links"]} >= {"host-00/nic-0 -> leaf-00"}


def num_processes(lab: RunningLab) -> int:
    try:
        with Visit(lab) as visit:
            return len(visit.describe()[1]["processes"])
    except LabError:  # not built yet
        return 0


@pytest.fixture
def running(labs: None) -> object:
    command = [sys.executable, "-m", "syncline", "lab", "run", FLAT, "--", "sleep", "900"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until = time.monotonic() + 120
            while not (mine := [lab for lab in running_labs() if lab.maker_pid == process.pid]):
                assert time.monotonic() < until
                time.sleep(0.05)
            (lab,) = mine
            while num_processes(lab) < 4 and time.monotonic() < until:
                time.sleep(0.05)
            yield lab.name, process
            process.terminate()  # not SIGINT, which is ignored by all that a background shell starts
            assert process.wait(240) == 143
            assert lab not in running_labs()
        finally:
            process.kill()


def test_a_running_lab_is_listed_joined_and_hurt(
    running: tuple[str, object], capfd: pytest.CaptureFixture[str]
) -> None:
    name = running[0]
    status, out, _ = run(capfd, "list", "--json")
    mine = next(row for row in json.loads(out)["labs"] if row["name"] == name)
    assert (status, mine["cluster"], len(mine["processes"])) == (0, "lab-flat", 4)
    assert run(capfd, "shell", "host-02", "--lab", name, "--", "sh", "-c", "hostname; exit 3")[:2] == (3, "host-02\n")
    status, out, _ = run(capfd, "shell", "host-01", "--lab", name, "--json", "--", "hostname")
    assert json.loads(out)["stdout"] == "host-01\n"
    status, out, _ = run(capfd, "fault", "host-01 paused", "host-02:eth0 rate 10%", "--lab", name)
    assert (status, out) == (0, "fault 1: host-01 paused\nfault 2: host-02:eth0 rate 10%\n")
    status, out, _ = run(capfd, "fault", "--mend", "1", "--lab", name, "--json")
    assert [row["text"] for row in json.loads(out)["faults"]] == ["host-02:eth0 rate 10%"]


def test_a_lab_that_ends_while_it_is_listed_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = RunningLab("syncline-lab-0-1-0", 1)
    monkeypatch.setattr("syncline.lab.registry.running_labs", lambda: (gone,))
    assert run(capsys, "list") == (0, "no lab is running\n", "")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("show", "no-such-cluster"), 'there is no file or preset "no-such-cluster"'),
        (("show", FLAT, "--scale", "fast"), '--scale "fast" is not a factor'),
        (("show", FLAT, "--scale", "1/0"), '--scale "1/0" is not a factor'),
        (("show", FLAT, "--set", "colour=red"), "--set: the profile has no colour"),
        (("show", FLAT, "--set", "mtu_bytes=big"), "mtu_bytes: must be a whole number"),
        (("show", FLAT, "--hosts", "9"), "lab-flat has 4 hosts, not 9"),
        (("run", FLAT, "--fault", "host-00 melts", "--", "true"), '"melts" in "host-00 melts" is not a kind of fault'),
        (("run", FLAT, "--fault", "host-08 killed", "--", "true"), 'the lab has no host "host-08"'),
        (("run", FLAT, "--timeout", "soon", "--", "true"), 'cannot read time "soon"'),
        (("run", FLAT), "Missing argument"),
        (("run", FLAT, "--record", "/no/such/folder/x.json", "--", "true"), 'there is no folder "/no/such/folder"'),
        (("shell", "host-00", "--lab", "nobody"), 'no lab is called "nobody"'),
        (("shell", "host-00", "--json"), "--json needs a command"),
    ],
)
def test_what_is_wrong_is_said(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], text: str) -> None:
    status, out, err = run(capsys, *arguments)
    assert status == 2
    assert text in err + out
    assert "Traceback" not in err + out


def test_a_command_that_is_not_there(labs: None, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, "run", FLAT, "--", "no-such-program")
    assert status == 2
    assert 'cannot start "no-such-program" on host-00: No such file or directory.' in err


def test_a_run_that_takes_too_long(labs: None, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, "run", FLAT, "--timeout", "300ms", "--", "sleep", "60")
    assert status == 2
    assert "4 of 4 ranks still ran after 0.3 s; they were ended." in err
