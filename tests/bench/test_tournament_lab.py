"""The tournament on an emulated fabric: slow links, lossy ones and ports that take short packets are named."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from syncline.errors import LabError
from syncline.fabric import load

CLUSTER = """
name: six
hosts: 6
host: 1 x H100
network: {topology: leaf-spine, link: 100GbE, hosts_per_leaf: 6, spines: 1}
"""
SLOW, LOSSY = "host-04", "host-02"


@pytest.mark.slow
def test_a_slow_link_and_a_lossy_one_among_twelve_are_named(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="measuring needs torch")
    from syncline.lab.lab import Lab

    path = tmp_path / "six.yaml"
    path.write_text(CLUSTER)
    command = [sys.executable, "-m", "syncline", "bench", "tournament", "--cluster", str(path), "--size", "512KiB"]
    try:
        with Lab(load(str(path))) as lab:
            lab.fault(f"{SLOW}:eth0 rate 20%")
            lab.fault(f"{LOSSY}:eth0 loss 2%")
            done = lab.run([*command, "-n", "2", "--json"], ranks_per_host=1, timeout_s=240)
    except LabError as error:
        pytest.skip(f"no lab here: {error.message}")
    assert done.exit_code == 0, done.ranks[0].stderr
    payload = json.loads(done.ranks[0].stdout)
    assert len(payload["matches"]) >= 30
    worst = next(one for one in payload["findings"] if one["rule"] == "bench.slow.host")
    assert worst["place"].startswith(f"{SLOW} ") and worst["confidence"] > 0.8
    lossy = [one for one in payload["findings"] if one["rule"].startswith("bench.loss")]
    assert [one["place"].split()[0] for one in lossy] == [LOSSY]
    # A busy machine may slow flows of other hosts too, but not as much.
    factors = [suspect["factor"] for suspect in payload["suspects"] if suspect["owner"] not in (SLOW, LOSSY)]
    assert all(factor > 1.5 * payload["suspects"][0]["factor"] for factor in factors)


@pytest.mark.slow
def test_a_port_that_takes_short_packets_from_the_start_is_the_one_finding(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="measuring needs torch")
    from syncline.lab.lab import Lab

    path = tmp_path / "six.yaml"
    path.write_text(CLUSTER.replace("hosts: 6", "hosts: 3").replace("hosts_per_leaf: 6", "hosts_per_leaf: 3"))
    command = [sys.executable, "-m", "syncline", "bench", "tournament", "--cluster", str(path), "--json"]
    try:
        with Lab(load(str(path))) as lab:
            lab.fault(f"{LOSSY}:eth0 mtu 1500")
            done = lab.run(command, ranks_per_host=1, timeout_s=240)
    except LabError as error:
        pytest.skip(f"no lab here: {error.message}")
    assert done.exit_code == 0, done.ranks[0].stderr
    payload = json.loads(done.ranks[0].stdout)
    assert [(one["rule"], one["place"]) for one in payload["findings"]] == [("bench.mtu", LOSSY)]
    assert payload["matches"] == []
