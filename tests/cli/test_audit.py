"""`syncline audit`, `capture` and `discover` as their users meet them."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from tests.auditing.samples import HOSTS
from tests.auditing.samples.plants import PLANTS

from syncline.auditing.capture import capture
from syncline.cli.audit import _status
from syncline.cli.shell.app import run
from syncline.fabric import load
from syncline.host.root import Root
from syncline.questions.audit import audit


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of captures: a healthy host, a broken one, one where something cannot be told."""
    folder = tmp_path_factory.mktemp("trees")
    healthy = HOSTS["dgx-h100"]()
    slow = next(p for p in PLANTS if p.name == "port at half rate").into(healthy)
    hot = next(p for p in PLANTS if p.name == "thermal slowdown").into(healthy)
    dim = HOSTS["plain-vm"]()
    dim.commands.pop("chronyc-tracking")
    for name, draft in (("good", healthy), ("slow", slow), ("hot", hot), ("dim", dim)):
        draft = draft.copy()
        draft.host = name
        draft.put("proc/sys/kernel/hostname", name)
        capture(Root.of(draft.tree()), folder / f"{name}.tar.gz")
    return folder


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = run(list(arguments))
    out, err = capsys.readouterr()
    return status, out, err


@pytest.mark.parametrize(
    ("tree", "nagios", "npd", "nhc"), [("good", 0, 0, 0), ("hot", 1, 1, 1), ("slow", 2, 1, 1), ("dim", 3, 2, 0)]
)
def test_exit_statuses(tree: str, nagios: int, npd: int, nhc: int, trees: Path) -> None:
    answer = audit([trees / f"{tree}.tar.gz"])
    assert [_status(answer, style) for style in ("nagios", "npd", "nhc", "none")] == [nagios, npd, nhc, 0]


def test_exit_statuses_of_the_command(trees: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dim = str(trees / "dim.tar.gz")
    assert said(capsys, "audit", "--root", dim)[0] == 3
    assert said(capsys, "audit", "--root", dim, "--exit", "npd")[0] == 2
    assert said(capsys, "audit", "--root", dim, "--unknown-ok")[0] == 0


def test_first_lines_stand_alone(trees: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = {
        t: said(capsys, "audit", "--root", str(trees / f"{t}.tar.gz"))[1].splitlines()[0]
        for t in ("good", "slow", "hot", "dim")
    }
    assert first["good"].startswith("OK: nothing found on good, ")
    assert first["slow"].startswith(
        "CRITICAL: 1 finding on slow: mlx5_4:1 200 Gb/s (200 Gb/sec (2X NDR)) | critical=1 "
    )
    assert first["hot"].startswith("WARNING: 1 finding on hot: gpu2 (0000:52:00.0) HW Thermal Slowdown active |")
    assert first["dim"].startswith("UNKNOWN: nothing found on dim, but 1 check could not be made")


def test_the_text_says_what_why_and_what_to_do(trees: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = said(capsys, "audit", "--root", str(trees / "slow.tar.gz"))
    assert "mlx5_4:1: 200 Gb/s (200 Gb/sec (2X NDR)); expected 400 Gb/s (ConnectX-7 beside it)" in out
    assert "why   The slowest rail sets the pace" in out
    assert "fix   Check cable, optic" in out
    assert "seen  sys/class/infiniband/mlx5_4/ports/1/rate" in out
    assert "does not apply:\n" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--bogus",), "No such option"),
        (("--exit", "loud"), 'no exit style is called "loud"'),
        (("--only", "nothing.*"), 'no rule matches "nothing.*"'),
        (("--root", "/no/such"), 'there is no "/no/such"'),
        (("--cluster", "no-such-preset"), "there is no file or preset"),
        (("matrix", "/no/such.json"), "cannot read"),
    ],
)
def test_wrong_use_is_unknown_not_critical(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = said(capsys, "audit", *arguments)
    assert status == 3
    assert message in err
    status, out, _ = said(capsys, "audit", *arguments, "--json")
    assert status == 3
    assert message in json.loads(out)["message"]


def test_a_cluster_says_what_should_be_there(trees: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("hosts: 4\nhost: 8 x H100\nnetwork: fat-tree NDR\n")
    assert said(capsys, "audit", "--root", str(trees / "good.tar.gz"), "--cluster", str(path))[0] == 0
    path.write_text(
        "hosts: 4\nhost: {gpu: B200, gpus: 8, nic: ConnectX-8, link: XDR, nics: 8}\nnetwork: fat-tree XDR\n"
    )
    status, out, _ = said(capsys, "audit", "--root", str(trees / "good.tar.gz"), "--cluster", str(path), "--json")
    (report,) = json.loads(out)["hosts"]
    assert status == 2
    assert {f["rule"] for f in report["findings"]} == {"rdma.port.rate"}
    assert report["findings"][0]["expected"] == "800 Gb/s (cluster cluster.yaml)"


def test_many_hosts_name_the_odd_one(trees: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("good", "slow", "hot"):
        said(capsys, "audit", "--root", str(trees / f"{name}.tar.gz"), "--write", str(tmp_path))
    files = sorted(map(str, tmp_path.glob("*.json")))
    assert [Path(f).name for f in files] == ["good.json", "hot.json", "slow.json"]
    status, out, _ = said(capsys, "audit", "matrix", *files)
    assert status == 2
    assert "cluster.rdma_rate" in out
    assert "slow: rdma rate 200 Gb/sec (2X NDR), 7 x 400 Gb/sec (4X NDR)" in out
    _, text, _ = said(capsys, "audit", "matrix", *files, "--json")
    rows = {row["fact"]: row for row in json.loads(text)["across"]["rows"]}
    assert list(rows["rdma rate"]["odd"]) == ["slow"]
    assert rows["kernel"]["odd"] == {}


def test_only_one_rank_of_a_host_writes(
    trees: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_LOCALID", "3")
    status, out, err = said(capsys, "audit", "--root", str(trees / "slow.tar.gz"), "--write", str(tmp_path))
    assert (status, out, list(tmp_path.iterdir())) == (0, "", [])
    assert "local rank 3" in err


def test_junit(trees: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "audit.xml"
    said(
        capsys, "audit", "--root", str(trees / "slow.tar.gz"), "--root", str(trees / "dim.tar.gz"), "--junit", str(path)
    )
    suites = {s.get("name"): s for s in ElementTree.parse(path).getroot()}
    assert set(suites) == {"slow", "dim", "across hosts"}
    slow = suites["slow"]
    assert (slow.get("failures"), slow.get("tests")) == ("1", str(len(slow)))
    (failure,) = slow.iter("failure")
    assert failure.get("type") == "critical"
    skipped = {case.get("name"): case[0].get("message") for case in suites["dim"] if len(case)}
    assert skipped["time.sync"] == "could not be checked: neither chronyc nor timedatectl answers"
    assert skipped["rdma.port.rate"] == "does not apply: no RDMA device"


def test_rules_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = said(capsys, "audit", "rules", "--json")
    rules = json.loads(out)["rules"]
    assert len(rules) > 100
    assert all(rule["about"] and rule["fix"] and rule["reference"] and rule["meaning"] for rule in rules)
    assert "pcie.acs" in said(capsys, "audit", "rules")[1]


def test_this_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = said(capsys, "audit", "--json")
    (live,) = json.loads(out)["hosts"]
    assert status == {"ok": 0, "warning": 1, "critical": 2, "unknown": 3}[live["status"]]
    assert said(capsys, "audit", "capture", str(tmp_path / "here.tar.gz"))[0] == 0
    _, out, _ = said(capsys, "audit", "--root", str(tmp_path / "here.tar.gz"), "--json")
    assert {f["rule"] for f in json.loads(out)["hosts"][0]["findings"]} == {f["rule"] for f in live["findings"]}


def test_capture_says_what_it_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = said(capsys, "audit", "capture", str(tmp_path / "here"))
    assert status == 0
    assert "it holds:" in out
    assert "it does not hold:" in out
    status, _, err = said(capsys, "audit", "capture", str(tmp_path / "here"))
    assert status == 3  # of a monitoring check, 2 would be CRITICAL
    assert "exists" in err


def test_discover_writes_what_fabric_show_reads(
    trees: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "cluster.yaml")
    status, out, _ = said(capsys, "discover", path, "--root", str(trees / "good.tar.gz"), "--names", "n[0-3]", "--json")
    assert status == 0
    assert json.loads(out)["gpus"] == 32
    assert said(capsys, "fabric", "show", path)[0] == 0
    assert load(path).host_names == ("n0", "n1", "n2", "n3")
    assert said(capsys, "discover", path, "--gpu", "no-such-gpu")[0] == 2


def test_peers_without_the_program_ip_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("syncline.host.root.shutil.which", lambda *_, **__: None)
    status, _, err = said(capsys, "audit", "--peers", "2", "--write", str(tmp_path))
    assert status == 3
    assert "the addresses of this host cannot be read: ip is not installed." in err
    assert "apt install iproute2" in err
