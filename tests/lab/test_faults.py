"""Faults in real labs: each does what it says, and is undone."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping

import pytest
from tests.lab.conftest import example, missing
from tests.lab.traffic import Transfer, wait_for_line

from syncline.errors import FaultError
from syncline.fault.fault import parse_fault
from syncline.lab import Lab, Process
from syncline.lab.check import check
from syncline.lab.recording import LabRecording
from syncline.lab.trouble import trouble

ATTEMPTS = 8
COUNT = [
    sys.executable,
    "-c",
    "import itertools, time\nfor i in itertools.count(): print(i, flush=True); time.sleep(0.01)",
]


def whats(lab: Lab) -> list[str]:
    return [event.what for event in lab.events]


def wait_for_event(lab: Lab, number: int, what: str) -> float:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        for event in lab.events:
            if event.fault == number and event.what == what:
                assert event.error == ""
                return event.at_s
        time.sleep(0.005)
    raise AssertionError(f"fault {number} was not {what}: {lab.events}")


def wait_for_bytes(recording: LabRecording, link: str, size_bytes: float) -> None:
    """Wait until a link has carried so much."""
    until = time.monotonic() + 120
    while recording.counters.carried_bytes()[link] < size_bytes:
        assert time.monotonic() < until, f"{link} carried less than {size_bytes:g} bytes in two minutes"
        time.sleep(0.01)


def wait_until_all_are_reached(lab: Lab) -> None:
    """Wait until every host reaches every other."""
    until = time.monotonic() + 120
    while (unreachable := check(lab, seconds=0.05, tolerance=0.3).unreachable) != ():
        assert time.monotonic() < until, unreachable


def wait_until_quiet(process: Process) -> int:
    """Wait until a process has printed nothing for 0.3 s, and return how many lines it has printed."""
    until = time.monotonic() + 120
    while True:
        before = len(process.lines["stdout"])
        time.sleep(0.3)
        if len(process.lines["stdout"]) == before:
            return before
        assert time.monotonic() < until, f"{process.label} went on printing"


@pytest.mark.parametrize(
    ("text", "directions"),
    [
        ("host-01:eth0 down", 2),
        ("host-01/nic-0 down", 2),
        ("host-01 rate 50%", 2),
        ("leaf-00 down", 12),
        ("leaf-00 <-> spine-01 loss 1%", 2),
        ("leaf-00 -> spine-01 loss 1%", 1),
        ("host-00 -> leaf-00 rate 10%", 1),
    ],
)
def test_targets(leaf_spine: Lab, text: str, directions: int) -> None:
    assert len(set(trouble(leaf_spine.blueprint, parse_fault(text)).directions)) == directions


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("host-77 killed", 'the lab has no host "host-77"'),
        ("leaf-00 paused", 'the lab has no host "leaf-00"'),
        ("host-01:eth7 down", 'the lab has no link "host-01:eth7"'),
        ("leaf-00 <-> leaf-01 down", 'the lab has no link "leaf-00 <-> leaf-01"'),
        ("host-01:eth0 rate 40Gbps", "faster than the link"),
        ("host-01 -> host-01 traffic 40%", "from one host to another"),
        ("host-01 -> host-02:eth4 traffic 40%", 'host-02 has no interface "eth4"'),
    ],
)
def test_what_is_not_there_is_named(leaf_spine: Lab, text: str, message: str) -> None:
    with pytest.raises(FaultError) as caught:
        leaf_spine.fault(text)
    assert message in caught.value.message


def test_rates_are_those_of_the_cluster(leaf_spine: Lab) -> None:
    found = trouble(leaf_spine.blueprint, parse_fault("host-01:eth0 rate 100Mbps"))
    assert found.rate_Bps == pytest.approx(12.5e6 * leaf_spine.blueprint.scale)


def test_a_cut_cable_stops_a_flow_and_a_mended_one_lets_it_go_on(flat: Lab) -> None:
    for _ in range(ATTEMPTS):  # on a busy machine the cut may come before the flow's first byte or after its last
        with flat.counters() as recording:
            transfer = Transfer(flat, "host-00", "host-03", size_bytes=9e6)
            wait_for_bytes(recording, "host-00/nic-0 -> leaf-00", 1e5)
            number = flat.fault("host-00:eth0 down for 400ms")
            flow = transfer.result()
        assert flow.size_bytes >= 9e6
        assert 0.35 < wait_for_event(flat, number, "ended") - wait_for_event(flat, number, "begun") < 20
        if flow.longest_gap_s > 0.35:
            return
    raise AssertionError(f"no flow of {ATTEMPTS} was stopped by a cut cable")


def fastest(lab: Lab, size_bytes: float, enough_Bps: float) -> float:
    """Return the best rate of a few flows, the first that is enough: a busy machine only makes a flow slower."""
    best_Bps = 0.0
    for _ in range(ATTEMPTS):
        best_Bps = max(best_Bps, Transfer(lab, "host-00", "host-01", size_bytes=size_bytes).result().rate_Bps)
        if best_Bps > enough_Bps:
            break
    return best_Bps


def test_a_slower_link_and_two_faults_on_it(flat: Lab) -> None:
    full = flat.blueprint.cables[0].rate_Bps
    one = flat.fault("host-00:eth0 rate 40%")
    two = flat.fault("host-00 -> leaf-00 rate 20%")
    assert Transfer(flat, "host-00", "host-01", size_bytes=6e5).result().rate_Bps < 0.3 * full
    flat.mend(two)
    assert 0.2 * full < fastest(flat, 1e6, 0.2 * full) < 0.5 * full
    flat.mend(one)
    assert fastest(flat, 2e6, 0.5 * full) > 0.5 * full


def num_lost(carried: Mapping[str, float]) -> float:
    """Return the bytes that left host-02 and did not come to host-03; the first to leave ask for an address."""
    return carried["host-02/nic-0 -> leaf-00"] - carried["leaf-00 -> host-03/nic-0"]


@pytest.mark.skipif(missing("nft") != "", reason=missing("nft"))
def test_lost_packets(flat: Lab) -> None:
    number = flat.fault("host-02 -> leaf-00 loss 100%")
    wait_for_event(flat, number, "begun")
    with flat.counters() as recording:
        transfer = Transfer(flat, "host-02", "host-03", size_bytes=1e5)
        until = time.monotonic() + 60
        # A question for an address (42 bytes) is no loss while it is on its way; two of them are, or one packet of TCP.
        while num_lost(recording.counters.carried_bytes()) < 60:
            assert time.monotonic() < until, "nothing was lost in 60 s"
            time.sleep(0.02)
        flat.mend(number)
        assert transfer.result(240.0).size_bytes >= 1e5
    assert num_lost(recording.counters.carried_bytes()) > 0


def test_somebody_elses_traffic(flat: Lab) -> None:
    number = flat.fault("host-01 -> host-02 traffic 50%")
    wanted = pytest.approx(0.5 * flat.blueprint.cables[2].rate_Bps, rel=0.35)
    rates = [carried_Bps(flat, "leaf-00 -> host-02/nic-0")]
    while rates[-1] != wanted and len(rates) < 2 * ATTEMPTS:  # its sender, too, waits for the processor
        rates.append(carried_Bps(flat, "leaf-00 -> host-02/nic-0"))
    flat.mend(number)
    assert rates[-1] == wanted, rates


def carried_Bps(lab: Lab, link: str) -> float:
    """Return what a link carries over about a second."""
    with lab.counters() as recording:
        time.sleep(1.0)
    return recording.counters.carried_bytes()[link] / recording.counters.duration_s


def test_a_paused_and_a_slow_and_a_killed_host(namespaces: None) -> None:
    with Lab(example("flat"), hosts=2) as lab:
        counting = lab.spawn("host-00", COUNT)
        other = lab.spawn("host-01", COUNT)
        wait_for_line(counting, "5")
        pause = lab.fault("host-00 paused")
        wait_for_event(lab, pause, "begun")
        elsewhere = len(other.lines["stdout"])
        before = wait_until_quiet(counting)
        wait_for_line(other, str(elsewhere + 10))
        assert len(counting.lines["stdout"]) == before
        lab.mend(pause)
        wait_for_line(counting, str(before + 5))
        slow = lab.fault("host-00 slow 30% for 300ms")
        wait_for_event(lab, slow, "ended")
        wait_for_line(counting, str(len(counting.lines["stdout"]) + 5))
        lab.fault("host-00 killed at 50ms")
        assert counting.wait(120) == -9
        assert other.exit_code is None


def test_a_slow_host_gets_its_share_of_time(namespaces: None) -> None:
    code = (
        "import time\nstart = time.monotonic()\nbusy = time.thread_time()\n"
        "while time.monotonic() - start < 1.0: pass\nprint(time.thread_time() - busy)"
    )
    with Lab(example("flat"), hosts=2) as lab:
        number = lab.fault("host-00 slow 25%")
        wait_for_event(lab, number, "begun")
        used = lab.execute("host-00", [sys.executable, "-c", code]).stdout
    assert float(used) < 0.5


def test_a_dead_rail_is_left_within_the_detection_time(two_rails: Lab) -> None:
    with two_rails.counters() as recording:
        transfer = Transfer(two_rails, "host-00", "host-03", size_bytes=12e6)
        wait_for_bytes(recording, "host-00/nic-0 -> rail-0/leaf-00", 1e5)
        number = two_rails.fault("host-00:eth0 down")
        flow = transfer.result()
    assert flow.size_bytes >= 12e6
    assert flow.longest_gap_s < 20
    assert recording.counters.carried_bytes()["host-00/nic-1 -> rail-1/leaf-00"] > 1e6
    rerouted, begun = wait_for_event(two_rails, number, "rerouted"), wait_for_event(two_rails, number, "begun")
    assert rerouted - begun >= 0.05
    path = two_rails.paths().path("host-00", "host-03")
    assert two_rails.blueprint.link_names[path[0]] == "host-00/nic-1 -> rail-1/leaf-00"
    two_rails.mend(number)
    wait_for_event(two_rails, number, "ended")
    wait_until_all_are_reached(two_rails)
    names = two_rails.blueprint.link_names
    assert names[two_rails.paths().path("host-00", "host-03")[0]] == "host-00/nic-0 -> rail-0/leaf-00"


def test_a_lost_uplink_is_routed_around(leaf_spine: Lab) -> None:
    names = leaf_spine.blueprint.link_names
    number = leaf_spine.fault("leaf-00 <-> spine-00 down")
    wait_for_event(leaf_spine, number, "rerouted")
    paths = leaf_spine.paths()
    uplinks = {names[paths.path(f"host-0{i}", f"host-0{j}")[1]] for i in range(4) for j in range(4, 8)}
    assert uplinks == {"leaf-00 -> spine-01"}
    leaf_spine.mend(number)
    wait_for_event(leaf_spine, number, "ended")
    wait_until_all_are_reached(leaf_spine)


def test_a_port_with_a_smaller_mtu_swallows_full_packets(flat: Lab) -> None:
    number = flat.fault("host-01:eth0 mtu 1500")
    wait_for_event(flat, number, "begun")
    transfer = Transfer(flat, "host-01", "host-02", size_bytes=1e5)
    with pytest.raises(TimeoutError):
        transfer.server.wait(0.7)
    flat.mend(number)
    assert transfer.result().size_bytes >= 1e5


def test_faults_of_a_run_are_timed_from_its_start(flat: Lab) -> None:
    result = flat.run(["sleep", "240"], faults=["host-02 killed at 200ms"], timeout_s=120)
    assert result.exit_code == -9
    assert result.first_failure is not None
    assert result.first_failure.host == "host-02"
    assert result.elapsed_s > 0.2


def test_a_cut_trunk_with_latency_and_its_repair(two_sites: Lab) -> None:
    number = two_sites.fault("east/border <-> west/border down")
    wait_for_event(two_sites, number, "begun")
    transfer = Transfer(two_sites, "east-host-00", "west-host-04", size_bytes=2e5)
    with pytest.raises(TimeoutError):
        transfer.server.wait(0.5)
    two_sites.mend(number)
    assert transfer.result().size_bytes >= 2e5
