"""Hosts side by side: the odd one out is named, a tie is called a tie, and what is not told is said."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.auditing.samples import HOSTS, HostDraft
from tests.auditing.samples.commands import getent
from tests.auditing.samples.hosts import huge_pages

from syncline.auditing.audit import audit
from syncline.auditing.matrix import compare
from syncline.auditing.paths import bad_paths
from syncline.auditing.probe import probe
from syncline.auditing.report import HostReport, read_reports
from syncline.errors import DescriptionError, UsageError
from syncline.finding import Severity
from syncline.host.packets import PacketLoss
from syncline.host.root import Root
from syncline.questions.audit import AuditAnswer


def reports(**facts: dict[str, str]) -> list[HostReport]:
    return [HostReport(host, "test", facts=told) for host, told in facts.items()]


def test_the_odd_host_is_named_with_the_majority() -> None:
    found = compare(reports(h0={"mtu": "9000"}, h1={"mtu": "9000"}, h2={"mtu": "1500"})).findings
    (finding,) = found
    assert (finding.rule, finding.place, finding.severity) == ("cluster.mtu", "h2", Severity.CRITICAL)
    assert finding.observed == "mtu 1500"
    assert finding.expected == "9000, as on 2 of 3 hosts"


def test_a_tie_names_nobody() -> None:
    (finding,) = compare(reports(h0={"kernel": "5"}, h1={"kernel": "6"})).findings
    assert finding.place == "h0, h1"
    assert finding.observed == "kernel: 5 on h0; 6 on h1"
    assert "is not known" in finding.meaning
    assert finding.confidence == 0.5


def test_half_is_no_majority() -> None:
    matrix = compare(reports(h0={"nccl": "a"}, h1={"nccl": "a"}, h2={"nccl": "b"}, h3={"nccl": "c"}))
    assert matrix.rows[0].majority is None


def test_who_does_not_tell_is_named_as_unknown() -> None:
    (finding,) = compare(reports(h0={"bios": "1"}, h1={"bios": "1"}, h2={})).findings
    assert (finding.severity, finding.place) == (Severity.UNKNOWN, "h2")


def test_a_variable_set_on_one_host_only() -> None:
    (finding,) = compare(reports(h0={}, h1={}, h2={"env NCCL_ALGO": "Ring"})).findings
    assert (finding.rule, finding.place) == ("cluster.env_nccl_algo", "h2")
    assert finding.expected.startswith("not set, as on 2 of 3")


def test_outliers_of_figures() -> None:
    figures = {"h0": 0.0001, "h1": 0.0002, "h2": 0.02, "h3": 0.003}
    hosts = [HostReport(h, "test", measures={"tcp retransmits": v, "cpu share": 0.9}) for h, v in figures.items()]
    (finding,) = compare(hosts).findings
    assert (finding.rule, finding.place) == ("cluster.tcp_retransmits", "h2")
    slow = [HostReport(f"h{i}", "test", measures={"cpu share": v}) for i, v in enumerate((0.9, 0.2, 1.0))]
    assert [(f.rule, f.place) for f in compare(slow).findings] == [("cluster.cpu_share", "h1")]
    assert compare(slow[:2]).findings == ()


def test_two_reports_of_one_host_are_refused() -> None:
    with pytest.raises(UsageError, match='2 reports of host "h0"'):
        compare([HostReport("h0", "a"), HostReport("h0", "b")])


def test_real_facts_of_sample_hosts_differ_where_changed() -> None:
    def other(draft: HostDraft) -> None:
        draft.put("sys/class/infiniband/mlx5_0/fw_ver", "32.38.1002")
        draft.put("usr/lib/x86_64-linux-gnu/libnccl.so.2.23.5", "")
        draft.drop("usr/lib/x86_64-linux-gnu/libnccl.so.2.23.4")

    found = {
        (f.rule, f.place) for f in compare(audited("roce-h100", {"a": nothing, "b": nothing, "c": other})).findings
    }
    assert found == {("cluster.rdma_firmware", "c"), ("cluster.nccl", "c")}


def _moved(address: str, number: int) -> str:
    """Return the same place in another host's networks; loopback and bridges are alike everywhere."""
    if address == "10.20.0.11":
        return f"10.20.0.{number}"
    parts = address.split(".")
    return ".".join((*parts[:2], str(int(parts[2]) + 10 * number), parts[3])) if parts[0] == "10" else address


def another(sample: str, name: str, number: int) -> HostDraft:
    """Return one more host of a kind, with a name and addresses of its own."""
    draft = HOSTS[sample]()
    draft.host = name
    draft.put("proc/sys/kernel/hostname", name)
    draft.put("etc/hosts", f"127.0.0.1 localhost\n10.20.0.{number} {name}")
    for row in draft.interfaces.values():
        for address in row["addr_info"]:
            address["local"] = _moved(address["local"], number)
    draft.commands |= dict.fromkeys(("getent-hosts", "getent-dns"), getent(name, f"10.20.0.{number}"))
    return draft


def audited(sample: str, changes: Mapping[str, Callable[[HostDraft], None]]) -> list[HostReport]:
    """Audit hosts of one kind, each with a change of its own."""
    made = []
    for number, (name, change) in enumerate(changes.items(), 21):
        draft = another(sample, name, number)
        change(draft)
        made.append(audit(Root.of(draft.tree())))
    return made


def nothing(draft: HostDraft) -> None:
    """Change nothing."""


def only_ipv6(draft: HostDraft) -> None:
    for device in range(8):
        for at in (2, 3):
            draft.put(f"sys/class/infiniband/mlx5_{device}/ports/1/gids/{at}", f"fd00::{device + 1}:{at}")


def version_one_at_three(draft: HostDraft) -> None:
    for device in range(8):
        draft.put(f"sys/class/infiniband/mlx5_{device}/ports/1/gid_attrs/types/3", "IB/RoCE v1")


def test_hosts_whose_addresses_are_of_another_family() -> None:
    changes = {"a": nothing, "b": nothing, "c": only_ipv6}
    found = {f.rule: f for f in compare(audited("roce-h100", changes)).findings}
    assert set(found) == {"cluster.gid_family"}
    assert (found["cluster.gid_family"].place, found["cluster.gid_family"].severity) == ("c", Severity.CRITICAL)
    assert found["cluster.gid_family"].observed == "gid family 8 x RoCE v2 IPv6"
    assert found["cluster.gid_family"].expected == "8 x RoCE v2 IPv4, as on 2 of 3 hosts"


def test_a_forced_index_that_means_another_family_on_one_host() -> None:
    def forced(draft: HostDraft) -> None:
        draft.environment["NCCL_IB_GID_INDEX"] = "3"

    def forced_and_odd(draft: HostDraft) -> None:
        forced(draft)
        version_one_at_three(draft)

    found = {
        (f.rule, f.place)
        for f in compare(audited("roce-h100", {"a": forced, "b": forced, "c": forced_and_odd})).findings
    }
    assert ("cluster.gid_family", "c") in found


def test_trays_of_one_rack_share_clique_and_node_map_and_racks_do_not() -> None:
    def rack_two(draft: HostDraft) -> None:
        for gpu in draft.smi.values():
            gpu |= {"Fabric/ClusterUUID": "11111111-2222-3333-4444-555555555555", "Fabric/CliqueId": "1"}
        draft.put("etc/nvidia-imex/nodes_config.cfg", "10.20.0.11\n10.21.0.12")

    def odd(draft: HostDraft) -> None:
        for gpu in draft.smi.values():
            gpu["Fabric/CliqueId"] = "7"
        draft.put("etc/nvidia-imex/nodes_config.cfg", "10.20.0.11\n10.20.0.12")

    racks = {"a": nothing, "b": nothing, "c": nothing, "d": rack_two, "e": rack_two}
    assert compare(audited("gb200-nvl72", racks)).findings == ()
    found = {(f.rule, f.place) for f in compare(audited("gb200-nvl72", racks | {"c": odd})).findings}
    assert found == {("cluster.nvlink_clique", "c"), ("cluster.imex_nodes", "c")}


def test_plugins_and_huge_pages_are_compared() -> None:
    def other(draft: HostDraft) -> None:
        draft.put("opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so", "")
        huge_pages(draft, 2048, 0, 512)
        huge_pages(draft, 2048, 1, 512)

    found = {(f.rule, f.place) for f in compare(audited("dgx-h100", {"a": nothing, "b": nothing, "c": other})).findings}
    assert found == {("cluster.nccl_plugins", "a, b"), ("cluster.huge_pages", "a, b")}


def with_hosts(text: str) -> Callable[[HostDraft], None]:
    return lambda draft: draft.put("etc/hosts", f"127.0.0.1 localhost\n{text}")


ALL_NAMES = "10.20.0.21 a\n10.20.0.22 b b.example\n10.20.0.23 c"


def test_one_host_that_takes_another_for_elsewhere_is_named() -> None:
    wrong = ALL_NAMES.replace("10.20.0.22 b", "10.20.0.23 b")
    changes = {"a": with_hosts(ALL_NAMES), "b": with_hosts(ALL_NAMES), "c": with_hosts(wrong)}
    (finding,) = compare(audited("plain-vm", changes)).findings
    assert (finding.rule, finding.place, finding.severity) == ("cluster.name.address", "c", Severity.CRITICAL)
    assert finding.observed == "c takes b to be at 10.20.0.23, which is c"
    assert finding.expected == "an address of b (10.20.0.22)"


def test_a_host_that_nobody_finds_where_it_is_is_named_itself() -> None:
    def moved(draft: HostDraft) -> None:
        with_hosts(ALL_NAMES)(draft)
        draft.interfaces["eth0"]["addr_info"][0]["local"] = "10.20.0.99"

    changes = {"a": with_hosts(ALL_NAMES), "b": with_hosts(ALL_NAMES), "c": moved}
    (finding,) = compare(audited("plain-vm", changes)).findings
    assert (finding.rule, finding.place) == ("cluster.name.address", "c")
    assert finding.observed == "a takes c to be at 10.20.0.23, and 1 more like it"


def test_a_name_that_is_missing_where_only_the_hosts_file_tells_names() -> None:
    def alone(text: str) -> Callable[[HostDraft], None]:
        def change(draft: HostDraft) -> None:
            with_hosts(text)(draft)
            draft.drop("etc/resolv.conf")

        return change

    without = ALL_NAMES.replace("10.20.0.22 b b.example\n", "")
    changes = {"a": alone(ALL_NAMES), "b": alone(ALL_NAMES), "c": alone(without)}
    (finding,) = compare(audited("plain-vm", changes)).findings
    assert (finding.rule, finding.place, finding.observed) == (
        "cluster.name.unknown",
        "c",
        "c does not find b by name",
    )


def test_what_a_resolver_answers_for_peers_is_held_against_where_they_are() -> None:
    names: dict[str, dict[str, tuple[str, ...]]] = {
        "a": {"b": ()},
        "b": {"a": ("10.0.0.1",)},
        "c": {"a": ("10.0.0.9",), "b": ("10.0.0.2",)},
    }
    at = {"a": ("10.0.0.1",), "b": ("10.0.0.2",), "c": ("10.0.0.3",)}
    found = compare([HostReport(h, "test", names=names[h], addresses=at[h]) for h in names]).findings
    assert {(f.rule, f.place) for f in found} == {("cluster.name.unknown", "a"), ("cluster.name.address", "c")}


def test_two_hosts_with_one_address() -> None:
    twins = [HostReport(h, "test", addresses=("10.0.0.1",)) for h in ("a", "b")]
    (finding,) = compare([*twins, HostReport("c", "test", addresses=("10.0.0.3",))]).findings
    assert (finding.rule, finding.place, finding.observed) == ("cluster.address.twice", "a, b", "all have 10.0.0.1")


def test_hosts_that_ask_other_servers_or_in_another_order() -> None:
    def other(draft: HostDraft) -> None:
        draft.put("etc/resolv.conf", "# by hand\nnameserver 9.9.9.9")
        draft.put("etc/nsswitch.conf", "hosts: dns files")

    found = {(f.rule, f.place) for f in compare(audited("plain-vm", {"a": nothing, "b": nothing, "c": other})).findings}
    assert ("cluster.name_servers", "c") in found
    assert ("cluster.name_sources", "c") in found


def test_reports_survive_json_and_being_mixed_in_one_file(tmp_path: Path) -> None:
    report = audit(Root.of(HOSTS["plain-vm"]().tree()))
    answer = AuditAnswer((report,)).to_json()
    path = tmp_path / "srun.out"
    path.write_text(json.dumps(answer) + "\n" + json.dumps(answer, indent=2))
    assert read_reports([path]) == [report, report]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "this is not JSON"),
        ('{"a": 1}', "not an audit report"),
        ('{"hosts": [{"host": "h", "findings": [3]}]}', "the report is damaged"),
        ("[" * 100_000, "this is not JSON"),
    ],
)
def test_what_is_no_report_is_refused_with_its_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("\n" + text)
    with pytest.raises(DescriptionError, match=message) as caught:
        read_reports([path])
    assert caught.value.where == f"{path} line 2"


def lost(pairs: dict[tuple[str, str], tuple[float, float]], hosts: str = "abcd") -> list[HostReport]:
    clean = (0.0, 0.0)
    return [
        HostReport(h, "test", lost={p: pairs.get((h, p), pairs.get((p, h), clean)) for p in hosts if p != h})
        for h in hosts
    ]


def test_bad_pairs_name_the_host_they_share() -> None:
    assert bad_paths(lost({})) == []
    wall = {("b", p): (0.0, 1.0) for p in "acd"}
    (finding,) = bad_paths(lost(wall))
    assert (finding.rule, finding.place, finding.confidence) == ("cluster.path.mtu", "b", 1.0)
    assert finding.observed == "full-size packets are lost, small ones are not, with 3 of 3 others (a, c, d)"
    (finding,) = bad_paths(lost({("c", "d"): (1.0, 1.0)}))
    assert (finding.rule, finding.place, finding.confidence) == ("cluster.path.unreachable", "d, c", 0.5)
    both = bad_paths(lost({("a", p): (0.1, 0.1) for p in "bcd"} | wall))
    assert {(f.rule, f.place) for f in both} == {("cluster.path.mtu", "b"), ("cluster.path.loss", "a")}


def test_doors_of_an_earlier_run_are_not_knocked_at(tmp_path: Path) -> None:
    old = tmp_path / "ghost.door"
    old.write_text(json.dumps({"host": "ghost", "at": ["127.0.0.1", 9]}))
    os.utime(old, (1, 1))
    with ThreadPoolExecutor() as pool:
        runs = [pool.submit(probe, tmp_path, host, "127.0.0.1", 1500, 2) for host in ("a", "b")]
        found = [run.result() for run in runs]
    assert found == [{"b": PacketLoss(0.0, 0.0)}, {"a": PacketLoss(0.0, 0.0)}]
