"""Real network namespaces: a clean lab raises no alarm, and five planted faults are each found on the right host."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncline.audit.matrix import compare
from syncline.audit.paths import bad_paths
from syncline.audit.report import HostReport, from_json
from syncline.errors import LabError
from syncline.fabric import load
from syncline.finding import Severity
from syncline.lab import Lab

CLUSTER = """hosts: 6
host: {gpu: T4, gpus: 1, nics: 1, nic: i350, link: 1GbE}
network: fat-tree 1GbE
"""
# Every rank sends to every other, so that loss shows in TCP's own counters.
TRAFFIC = """
import os, socket, sys, threading, time
me, peers = int(os.environ["RANK"]), sys.argv[1:]
server = socket.create_server(("", 6000))
def serve():
    for _ in range(len(peers) - 1):
        thread = threading.Thread(target=drain, args=(server.accept()[0],))
        thread.start(); threads.append(thread)
def drain(stream):
    while stream.recv(1 << 18): pass
def send(peer):
    for _ in range(500):
        try:
            out = socket.create_connection((peer, 6000)); break
        except ConnectionRefusedError: time.sleep(0.02)
    out.sendall(bytes(2_000_000)); out.shutdown(socket.SHUT_WR); out.recv(1)
threads = [threading.Thread(target=send, args=(peer,)) for at, peer in enumerate(peers) if at != me]
threads[0:0] = [threading.Thread(target=serve)]
for thread in list(threads): thread.start()
threads[0].join()
for thread in threads: thread.join()
"""
SET_MTU = 'test "$SYNCLINE_LAB_HOST" != host-00 || ip link set eth0 mtu "$0"'
# The lab looks for new processes of a slow host a few times a second: wait until it has seen this one.
SPIN = "import json, time; from syncline.audit.measure import spin; time.sleep(0.5); print(json.dumps(spin(1.0)))"
PROBE = """
import json, os, sys
from pathlib import Path
from syncline.audit.probe import probe
address = os.environ["SYNCLINE_LAB_ADDRESSES"].split(",")[0].split("/")[0]
lost = probe(Path(sys.argv[1]), os.environ["SYNCLINE_LAB_HOST"], address, 9000, int(sys.argv[2]))
print(json.dumps({peer: (shares.small, shares.large) for peer, shares in lost.items()}))
"""
AUDIT = """
import os, sys
if os.environ["SYNCLINE_LAB_HOST"] in sys.argv[2:]:
    os.environ["NCCL_SOCKET_IFNAME"] = "lo"
from syncline.cli.app import run
sys.exit(run(["audit", "--cluster", sys.argv[1], "--exit", "none", "--json"]))
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lab") / "cluster.yaml"
    path.write_text(CLUSTER)
    return path


@pytest.fixture(scope="module")
def lab(cluster: Path) -> Iterator[Lab]:
    try:
        lab = Lab(load(cluster), scale=0.2).open()
    except LabError as error:
        pytest.skip(str(error))
    yield lab
    lab.close()


def send(lab: Lab) -> None:
    """Let every host send to every other."""
    addresses = [lab.address(host) for host in lab.host_names]
    done = lab.run([sys.executable, "-c", TRAFFIC, *addresses], ranks_per_host=1, timeout_s=60)
    assert done.exit_status == 0, done.ranks[0].stderr


def set_mtu(lab: Lab, mtu_bytes: int) -> None:
    """Change the MTU of host-00, at its own end."""
    done = lab.run(["sh", "-c", SET_MTU, str(mtu_bytes)], ranks_per_host=1)
    assert done.exit_status == 0, done.ranks[0].stderr


def look(lab: Lab, cluster: Path, *wrong: str) -> list[HostReport]:
    """Audit every host at once; those in `wrong` are told to use loopback."""
    done = lab.run([sys.executable, "-c", AUDIT, str(cluster), *wrong], ranks_per_host=1, timeout_s=60)
    assert done.exit_status == 0, done.ranks[0].stderr
    return [from_json(json.loads(rank.stdout), rank.host) for rank in done.ranks]


def alarms(reports: list[HostReport]) -> set[tuple[str, str]]:
    """Return (rule, host) of what concerns the network; limits and the like are this machine's own."""
    found = [f for report in reports for f in report.findings] + list(compare(reports).findings)
    subjects = ("net.", "env.", "nccl.", "cluster.", "rdma.", "roce.")
    return {
        (finding.rule, finding.place.split(" ")[0])
        for finding in found
        if finding.rule.startswith(subjects) and finding.severity is not Severity.UNKNOWN
    }


@pytest.mark.slow
def test_no_false_alarm_on_a_clean_lab_and_each_fault_found_on_its_host(lab: Lab, cluster: Path) -> None:
    send(lab)
    assert alarms(look(lab, cluster)) == set()

    faults = [lab.fault("host-01:eth0 rate 25%"), lab.fault("host-03:eth0 loss 3%")]
    send(lab)
    # The lab's own mtu fault is at the switch's end, where no setting of the host shows it; this one is at the host's.
    set_mtu(lab, 1400)
    try:
        found = alarms(look(lab, cluster, "host-02"))
    finally:
        set_mtu(lab, 9000)
        for number in faults:
            lab.mend(number)
    planted = {
        ("cluster.mtu", "host-00"),  # MTU mismatch: the odd host out
        ("net.mtu", "host-00"),  # and below what the description says
        ("net.shaped", "host-01"),  # slow link
        ("cluster.queueing", "host-01"),
        ("env.socket_ifname.wrong", "host-02"),  # wrong interface
        ("cluster.env_nccl_socket_ifname", "host-02"),
        ("cluster.tcp_retransmits", "host-03"),  # lossy link
        ("net.tcp.retransmits", "host-03"),
    }
    assert planted <= found
    # What is lost on host-03's cable is lost by its peers too: they retransmit what they send to it, and nothing else.
    rest = found - planted
    assert {rule for rule, _ in rest} <= {"net.tcp.retransmits"}


@pytest.mark.slow
def test_packets_between_hosts_find_what_no_host_can_see(lab: Lab, tmp_path: Path) -> None:
    assert bad_paths(exchange(lab, tmp_path / "clean")) == []
    faults = [lab.fault("host-05:eth0 mtu 1500"), lab.fault("host-02:eth0 loss 10%")]
    found = {(finding.rule, finding.place) for finding in bad_paths(exchange(lab, tmp_path / "broken"))}
    assert found == {("cluster.path.mtu", "host-05"), ("cluster.path.loss", "host-02")}
    for number in faults:
        lab.mend(number)


def exchange(lab: Lab, folder: Path) -> list[HostReport]:
    """Let every host probe every other."""
    done = lab.run([sys.executable, "-c", PROBE, str(folder), str(len(lab.host_names))], ranks_per_host=1, timeout_s=60)
    assert done.exit_status == 0, done.ranks[0].stderr
    return [HostReport(rank.host, "lab", lost=json.loads(rank.stdout)) for rank in done.ranks]


@pytest.mark.slow
def test_one_slow_host_is_named(lab: Lab) -> None:
    assert slow_hosts(lab) == set()
    number = lab.fault("host-01 slow 20%")
    assert ("cluster.cpu_held_back", "host-01") in slow_hosts(lab)
    lab.mend(number)


def slow_hosts(lab: Lab) -> set[tuple[str, str]]:
    """Compare what `--active` measures, without the start of a whole command, which a slow host makes slow."""
    done = lab.run([sys.executable, "-c", SPIN], ranks_per_host=1, num_ranks=3, timeout_s=60)
    assert done.exit_status == 0, done.ranks[0].stderr
    figures = [HostReport(rank.host, "lab", measures=json.loads(rank.stdout)) for rank in done.ranks]
    found = {(finding.rule, finding.place) for finding in compare(figures).findings}
    return {(rule, host) for rule, host in found if rule == "cluster.cpu_held_back"}  # shares vary with other load
