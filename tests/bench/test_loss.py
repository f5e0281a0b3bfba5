"""Lost packets are pinned on a part from what senders sent again, and full-size packets are asked for first."""

from __future__ import annotations

import numpy as np
import pytest
from tests.drill.tournament import Drill

from syncline.bench.incidence import Crossings, PartKind
from syncline.bench.loss import losses
from syncline.bench.packet_size import MOST_PEERS, partners, size_findings
from syncline.bench.pairing import Match, tournament
from syncline.bench.tournament import Result, run
from syncline.bench.tournament_finding import findings
from syncline.fabric import ClusterSpec, Fabric, build
from syncline.finding import Severity
from syncline.host.packets import PacketLoss
from syncline.host.resent import Resent, read_resent, tcp_resent

HOSTS = 8


def fabric(per_leaf: int, spines: int) -> Fabric:
    network = {"topology": "leaf-spine", "link": "100GbE", "hosts_per_leaf": per_leaf, "spines": spines}
    return build(ClusterSpec.model_validate({"hosts": HOSTS, "host": "1 x H100", "network": network}))


FLAT, TWO = fabric(8, 1), fabric(4, 1)
MATCHES = [match for round_ in tournament(HOSTS) for match in round_]
NAMES = [f"h{i}" for i in range(HOSTS)]


def counts(share: float, bad: set[Match], seed: int, sent: int = 3000, usual: float = 1e-5) -> list[Resent]:
    rng = np.random.default_rng(seed)
    return [Resent(sent, int(rng.poisson(sent * (usual + share * (match in bad))))) for match in MATCHES]


@pytest.mark.parametrize("share", [0.0005, 0.002, 0.01, 0.1])
@pytest.mark.parametrize("net", [FLAT, TWO], ids=["flat", "two leaves"])
def test_the_lossy_direction_of_a_host_is_named_and_nothing_else(net: Fabric, share: float) -> None:
    incidence = Crossings(net, net.gpus.tolist()).incidence(MATCHES)
    for seed in range(10):
        bad = seed % HOSTS
        into = seed % 2 == 1
        rows = {match for match in MATCHES if (match.dst if into else match.src) == bad}
        (suspect,) = losses(counts(share, rows, seed, sent=10_000), incidence)
        assert suspect.part.kind is (PartKind.HOST_RX if into else PartKind.HOST_TX)
        assert suspect.part.owner == net.host_names[bad]
        assert suspect.share == pytest.approx(share, rel=0.6)


def test_a_cable_that_loses_little_both_ways_is_named() -> None:
    incidence = Crossings(FLAT, FLAT.gpus.tolist()).incidence(MATCHES)
    named = 0
    for seed in range(20):
        rows = {match for match in MATCHES if 3 in match}
        found = losses(counts(0.0005, rows, seed, sent=2000), incidence)  # seven packets each way
        assert all(suspect.part.owner == "host-03" for suspect in found)
        named += bool(found)
    assert named >= 15


def test_a_link_between_switches_and_a_whole_leaf_are_named() -> None:
    incidence = Crossings(TWO, TWO.gpus.tolist()).incidence(MATCHES)
    up = {match for match in MATCHES if match.src < 4 <= match.dst}
    (suspect,) = losses(counts(0.01, up, 1), incidence)
    assert suspect.part.name == "uplinks of leaf-00"
    leaf = {match for match in MATCHES if min(match) < 4}
    (suspect,) = losses(counts(0.01, leaf, 2), incidence)
    assert suspect.part.kind is PartKind.LEAF and suspect.part.owner == "leaf-00"


def test_a_sound_network_raises_no_alarm_and_nobody_is_blamed_without_counters() -> None:
    incidence = Crossings(FLAT, FLAT.gpus.tolist()).incidence(MATCHES)
    for usual in (0.0, 1e-5, 1e-3):
        for seed in range(20):
            assert losses(counts(0.0, set(), seed, usual=usual), incidence) == ()
    assert losses([Resent()] * len(MATCHES), incidence) == () and losses([], incidence) == ()
    burst = [Resent(3000, 40 if row == 5 else 0) for row in range(len(MATCHES))]
    assert losses(burst, incidence) == ()  # one flow alone may be anything


def played() -> Result:
    exercise = Drill(FLAT, seed=1)
    return run(exercise.crossings(known=True), exercise.play)


def test_loss_that_the_best_of_three_hides_is_a_finding_of_the_cable() -> None:
    result = played()
    both = [Resent(2000, 20 if 2 in match else 0) for match in result.matches]
    (finding,) = findings(result.judged(Drill(FLAT).crossings(known=True), both, []), NAMES)
    assert finding.rule == "bench.loss.host" and finding.severity is Severity.CRITICAL
    assert "1 % of packets sent again" in finding.observed and finding.place.endswith("and back")
    assert any("20 of 2,000 packets sent again" in line for line in finding.evidence)


def test_loss_wherever_flows_go_blames_nobody() -> None:
    result = played()
    alike = [Resent(2000, 20)] * len(result.matches)
    (finding,) = findings(result.judged(Drill(FLAT).crossings(known=True), alike, []), NAMES)
    assert finding.rule == "bench.loss.everything" and finding.observed == "1 % of packets sent again"


def test_slow_and_lossy_is_one_finding() -> None:
    exercise = Drill(FLAT, seed=1)
    planted = exercise.plant(PartKind.HOST_TX, exercise.parts(), 0.2)
    result = run(exercise.crossings(known=True), exercise.play)
    bad = FLAT.host_names.index(planted.part.owner)
    for share, rule in ((100, "bench.loss.host-tx"), (4, "bench.slow.host-tx")):
        resent = [Resent(2000, share if match.src == bad else 0) for match in result.matches]
        (finding,) = findings(result.judged(exercise.crossings(known=True), resent, []), NAMES)
        assert finding.rule == rule and planted.part.owner in finding.place


def test_without_counters_repetitions_that_differ_are_told() -> None:
    result = played()
    seconds = [np.array([[1.0, 4.0 if match.dst == 3 else 1.02, 1.01]]) for match in result.matches]
    none = [Resent()] * len(result.matches)
    (finding,) = findings(result.judged(Drill(FLAT).crossings(known=True), none, seconds), NAMES)
    assert finding.rule == "bench.uneven.host-rx" and finding.severity is Severity.WARNING
    even = [np.array([[1.0, 1.01, 1.02]])] * len(result.matches)
    assert findings(result.judged(Drill(FLAT).crossings(known=True), none, even), NAMES) == []


def lost(bad: PacketLoss, pairs: set[tuple[int, int]], hosts: int = HOSTS) -> dict[tuple[int, int], PacketLoss]:
    rows = {}
    for a in range(hosts):
        for b in partners(a, hosts):
            rows[a, b] = bad if (min(a, b), max(a, b)) in pairs else PacketLoss(0.0, 0.05)
    return rows


def test_a_port_that_takes_short_packets_is_one_finding() -> None:
    pairs = {(min(2, h), max(2, h)) for h in range(HOSTS) if h != 2}
    (finding,) = size_findings(lost(PacketLoss(0.0, 1.0), pairs), NAMES, [9000] * HOSTS, [0] * HOSTS)
    assert finding.rule == "bench.mtu" and finding.place == "h2" and "9,000 bytes" in finding.observed
    assert "switch ports" in finding.fix
    odd = [9000] * HOSTS
    odd[2] = 1500
    (finding,) = size_findings(lost(PacketLoss(0.0, 1.0), pairs), NAMES, odd, [0] * HOSTS)
    assert finding.fix == "Set the interface of h2 to MTU 9,000, as the others have it."
    assert "h2 has MTU 1,500, most have 9,000" in finding.evidence


def test_leaves_between_which_packets_are_lost_and_hosts_that_are_silent() -> None:
    leaf = [0] * 4 + [1] * 4
    across = {(a, b) for a in range(4) for b in range(4, 8)}
    (finding,) = size_findings(lost(PacketLoss(0.1, 1.0), across), NAMES, [9000] * HOSTS, leaf)
    assert finding.place == "the leaf switches of h0 and h4, and of 15 more pairs"
    silent = {(min(7, h), max(7, h)) for h in range(7)}
    (finding,) = size_findings(lost(PacketLoss(1.0, 1.0), silent), NAMES, [9000] * HOSTS, leaf)
    assert finding.rule == "bench.reach" and finding.place == "h7"
    assert size_findings(lost(PacketLoss(0.1, 0.1), set()), NAMES, [9000] * HOSTS, leaf) == []
    two = {(0, 1): PacketLoss(0.0, 1.0), (1, 0): PacketLoss(0.0, 1.0)}
    (finding,) = size_findings(two, ["a", "b"], [9000, 9000], [0, 0])
    assert finding.place == "a and b"


def test_many_hosts_ask_a_few_others_and_everyone_is_asked_back() -> None:
    for count in (2, 3, MOST_PEERS + 1, 200):
        asked = {a: set(partners(a, count)) for a in range(count)}
        assert all(a in asked[b] for a in asked for b in asked[a]) and all(asked.values())
    assert len(partners(0, 1000)) < 25


def test_counters_as_the_kernel_writes_them(tmp_path: object) -> None:
    text = "Ip: a b\nIp: 1 2\nTcp: RtoMin OutSegs RetransSegs\nTcp: 200 1000 12\n"
    assert tcp_resent(text) == Resent(1000, 12)
    for broken in ("", "Tcp: OutSegs\n", "Tcp: OutSegs RetransSegs\nTcp: x -1\n"):
        assert tcp_resent(broken) is None
    assert (Resent(1000, 12) - Resent(400, 6)).share == 0.01 and Resent().share == 0.0
    assert read_resent().sent >= 0
