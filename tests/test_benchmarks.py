"""Benchmarks: the table of results, a missing peer is named, and what `make fresh` hands into a bare tree."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import time
from pathlib import Path

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import fresh
import run
from rig import peer

ROOT = Path(__file__).parents[1]


def test_every_benchmark_has_a_peer_or_bound_and_its_latest_result_in_the_table() -> None:
    listed = yaml.safe_load((ROOT / "benchmarks/table.yaml").read_text(encoding="utf-8"))
    assert set(listed) == {*run.names(), *run.PROOFS, "gpu_suite"}
    assert {path.stem for path in (ROOT / "benchmarks/results").iterdir()} == set(listed)
    assert all(row["bound"] and row["figures"] for row in listed.values())
    assert len(run.names()) <= 30
    assert "not measured" not in run.table()
    assert run.TABLE.read_text(encoding="utf-8") == run.table(), "run: python benchmarks/run.py --table"


def test_a_missing_peer_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer, "PYTHON", "/no/such/python")
    found = peer.simgrid("simgrid_ring.py", 4, 1024)
    assert str(found) == "SimGrid is not installed (Debian: apt install python3-simgrid); measured without it"
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert "g++ libns3-dev" in str(peer.ns3())


def test_a_bare_tree_gets_the_packages_that_newcomers_are_told_to_install() -> None:
    assert {"git", "make", "g++", "python3-venv", "iproute2", "nftables", "fonts-dejavu-core"} <= set(fresh.packages())


def test_pip_is_set_inside_as_it_is_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wheels, index = tmp_path / "wheels", tmp_path / "index" / "simple"
    wheels.mkdir()
    index.mkdir(parents=True)
    (tmp_path / "pip.conf").write_text(f"[global]\nextra-index-url =\n  file://{index}\ntimeout = 5\n")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("PIP_TIMEOUT", "9")
    found = fresh.pip_settings()
    assert found["PIP_EXTRA_INDEX_URL"] == f"file://{index}"
    assert found["PIP_TIMEOUT"] == "9", "a variable wins over a file"
    assert "PIP_CONFIG_FILE" not in found
    assert {str(wheels), str(index.parent)} <= set(fresh.places(found))


def test_runs_of_the_tests_are_told_one_by_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The second run fails in one test and the third before any."""
    good = '<testcase classname="a" name="one" time="2.4"/>'
    good += '<testcase classname="a" name="two"><skipped message="no b"/></testcase>'
    bad = '<testcase classname="a" name="one"><failure message="1 != 2"/></testcase>'
    reports, told = iter([(0, good), (1, good + bad), (2, None)]), []

    def enter(tree: Path, command: str, **settings: str) -> int:
        told.append((command, *settings))
        status, cases = next(reports)
        if cases is not None:
            (tree / "root").mkdir(exist_ok=True)
            (tree / "root/tests.xml").write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
        return status

    monkeypatch.setattr(fresh, "enter", enter)
    first, second, third = (fresh.tested(tmp_path, "make test") for _ in range(3))
    assert told == [("make test", "PYTEST_ADDOPTS")] * 3
    assert (first["status"], first["num_passed"], first["num_skipped"], first["failed"]) == (0, 1, 1, [])
    assert first["skipped_because"] == {"a: no b": 1}
    assert first["seconds_by_folder"] == {"a": 2}
    assert (second["status"], second["num_passed"], second["num_failed"], second["failed"]) == (1, 1, 1, ["a::one"])
    assert (third["status"], third["failed"]) == (2, ["ended before any test"])


def test_loops_are_busy_in_a_session_of_their_own_and_end() -> None:
    def members(session: int) -> int:
        found = 0
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(ProcessLookupError):  # it has ended since
                found += os.getsid(int(path.name)) == session
        return found

    until = time.monotonic() + 120
    with fresh.busy(3) as session:
        assert session != os.getsid(0)
        while members(session) < 4:  # the shell that holds them, and three
            assert time.monotonic() < until, "the loops did not start"
    while members(session):
        assert time.monotonic() < until, "the loops did not end"


def test_a_number_of_runs_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRESH_RUNS", "3")
    assert (fresh.count("FRESH_RUNS", 1), fresh.count("FRESH_LOAD", 0)) == (3, 0)
    monkeypatch.setenv("FRESH_LOAD", "many")
    with pytest.raises(SystemExit, match="FRESH_LOAD is 'many', not a whole number"):
        fresh.count("FRESH_LOAD", 0)


def test_ranks_get_whole_cores_and_the_other_half_of_the_training_core_last(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = importlib.import_module("rig.cores")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setattr(cores, "siblings", lambda cpu: (cpu % 4, cpu % 4 + 4))
    assert cores.shares(2) == [[0, 1, 5, 4], [2, 3, 7, 6]]
    assert cores.shares(3) == [[], [], []], "one core each is not enough"
    monkeypatch.setattr(cores, "siblings", lambda cpu: (cpu,))
    assert cores.shares(2) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_step_waits_at_every_bucket_for_the_rank_that_comes_last_to_it() -> None:
    pytest.importorskip("torch", reason="the rig's ranks need torch")
    costs = importlib.import_module("rig.wire_costs")
    first = [(1.0, [1.0, 5.0], 3.0)] * 3
    second = [(2.0, [1.0, 1.0], 1.0)] * 3
    assert costs.slowest([first, second]) == {"forward_s": 2.0, "backward_s": [1.0, 4.0], "optimizer_s": 3.0}
    assert costs.alone_s(first) == 10.0


def test_steps_are_judged_by_what_there_is_and_by_turns_beside_quick_processors() -> None:
    pytest.importorskip("pyroute2", reason="the rig makes its cables with pyroute2")
    wire = importlib.import_module("wire")
    work = {"forward_s": 0.1, "backward_s": [0.2], "elements": [1 << 20], "optimizer_s": 0.1}
    known = {"what": "costs", "work": work, "fitted_work": work, "work_alone_s": [0.4, 0.3], "codecs": {},
             "backend_Bps": 1e9}  # fmt: skip
    task = {"what": "steps", "device": "cpu"}

    def turn(method: str, median_s: float, slower: float) -> dict[str, object]:
        ranks = [{"median_s": median_s, "forward_s": 0.1, "optimizer_s": 0.1, "cpu_s": 0.4, "wire_bytes": 1 << 20,
                  "checksum": 1.0}] * 2  # fmt: skip
        return {"what": "turn", "rate_bps": 1e9, "method": method, "round": 0, "slower": slower, "ranks": ranks}

    seen = [known, turn("compute", 0.6, 1.5), turn("compute", 0.4, 1.0)]
    (row,) = wire.judged(seen, task)
    assert (row["median_s"], row["predicted_s"], "of_bound" in row) == (0.4, 0.4, False)
    rows = wire.judged([*seen, turn("ddp", 0.8, 1.2), turn("int8/early", 0.5, 1.0)], task)
    assert [row["of_bound"] for row in rows] == [1.0, 0.5, 0.8]
    assert rows[2]["times_ddp"] == 1.6
    assert "beside a processor 1.20 times slower" in wire.told(rows[1])
    assert "beside" not in wire.told(rows[2])


def test_runs_with_cut_rails_are_compared_when_their_reference_is_there() -> None:
    pytest.importorskip("pyroute2", reason="the rig makes its cables with pyroute2")
    wire = importlib.import_module("wire")
    cut = {"what": "cuts", "codec": "int8", "name": "cut", "steps": 3, "checksums": [1, 2, 9]}
    assert "not compared" in wire.told(wire.compared({("int8", "cut"): cut})[0])
    reference = {**cut, "name": "reference", "checksums": [1, 2, 3, 4]}
    rows = wire.compared({("int8", "cut"): cut, ("int8", "reference"): reference})
    assert [(row["steps_compared"], row["steps_that_differ"]) for row in rows] == [(3, 1), (4, 0)]
