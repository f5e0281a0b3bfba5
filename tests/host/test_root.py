"""Reading a host: values, absence, and reasons are three different things."""

from __future__ import annotations

import errno

import pytest
from tests.auditing.samples import HOSTS
from tests.auditing.samples.draft import config_space

from syncline.auditing.audit import audit, select
from syncline.auditing.expect import from_cluster, scaled
from syncline.errors import DescriptionError, UsageError
from syncline.host.gpu import parse_nvlink, parse_smi
from syncline.host.host import Host, interface_matches, version
from syncline.host.pci import ConfigSpace, PciTree, read_pci
from syncline.host.rdma import active_mtu_bytes
from syncline.host.root import Root
from syncline.host.tree import DeniedFile, Entry, MemoryTree, SymbolicLink


def root(**entries: Entry) -> Root:
    return Root.of(MemoryTree({name.replace("__", "/"): entry for name, entry in entries.items()}))


def test_absent_denied_no_value_and_junk() -> None:
    tree = root(a=b"12\n", b=DeniedFile(), c=DeniedFile(errno.EINVAL), d=b"\xff\xfe", e=b"0x10")
    with tree.noting() as met:
        assert (tree.number("a"), tree.number("e")) == (12, 16)
        assert [tree.number(name) for name in "bcdx"] == [None] * 4
    assert met == {"b": "permission denied", "d": 'holds "\\ufffd\\ufffd", which is no number'}
    with tree.noting() as again:
        assert tree.number("b") is None
    assert again == {"b": "permission denied"}


def test_links_stay_inside() -> None:
    tree = root(
        x__up=SymbolicLink("../../../../x/file"),
        x__file=b"1",
        x__abs=SymbolicLink("/x/file"),
        x__dir=SymbolicLink("."),
        loop=SymbolicLink("loop"),
    )
    assert [tree.text(path) for path in ("x/up", "x/abs", "x/dir/dir/file", "loop", "loop/x")] == [
        "1",
        "1",
        "1",
        None,
        None,
    ]
    assert set(tree.problems) == {"loop", "loop/x"}


def test_a_fact_tells_its_problems_to_every_rule_that_uses_it() -> None:
    host = Host(root(proc__sys__kernel__hostname=DeniedFile(), etc__hostname=b"h\n"))
    for _ in range(2):
        with host.root.noting() as met:
            assert host.name == "h"
        assert met == {"proc/sys/kernel/hostname": "permission denied"}


def test_commands_of_this_machine_say_why_they_failed() -> None:
    live = Root.live()
    assert live.command("no", ("syncline-no-such-tool",)) is None
    assert live.problems["`syncline-no-such-tool`"] == "syncline-no-such-tool is not installed"
    assert live.command("false", ("false",)) is None
    assert live.problems["`false`"] == "exit status 1"


def test_this_machine_is_audited_and_every_rule_is_accounted_for() -> None:
    report = audit(Root.live())
    rules = {rule.id for rule in select()}
    named = {finding.rule for finding in report.findings}
    # What the kernel's messages say has the name of a rule for lines; the audit's own rule for them is then no finding.
    mine = {rule if rule in rules else "kernel.log" for rule in named}
    assert mine | set(report.passed) | {rule for ids in report.skipped.values() for rule in ids} == rules
    assert report.seconds > 0
    assert report.facts["kernel"]


def chain(tree: PciTree, a: str, b: str) -> str:
    return tree.path_kind(a, b)


def test_path_kinds_of_a_dgx() -> None:
    tree = read_pci(Root.of(HOSTS["dgx-h100"]().tree()))
    assert chain(tree, "0000:1b:00.0", "0000:18:00.0") == "PIX"
    assert chain(tree, "0000:1b:00.0", "0000:40:00.0") == "NODE"
    assert chain(tree, "0000:1b:00.0", "0000:dc:00.0") == "SYS"
    assert chain(tree, "0000:07:00.0", "0000:08:00.0") == "PHB"


def test_config_space() -> None:
    space = ConfigSpace(config_space("15b3", "1021", acs=0x1D, ats=True))
    assert space.acs_control() == ("SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd")
    assert space.ats_enabled() is True
    assert (space.relaxed_ordering(), space.max_read_request_bytes()) == (True, 4096)
    short = ConfigSpace(config_space("15b3", "1021", acs=0x1D)[:64])
    assert (short.acs_control(), short.relaxed_ordering(), short.is_whole) == (None, None, False)
    assert ConfigSpace(b"\xff" * 4096).acs_control() is None  # a device that fell off the bus reads as ones


def test_tool_outputs() -> None:
    report = parse_smi(
        "Driver Version : 580.1\nGPU 00000000:1B:00.0\n    Fabric\n        State : Completed\n"
        "    Clocks\n        SM : 1980 MHz\n"
    )
    assert report.head == {"Driver Version": "580.1"}
    assert report.gpus == {"0000:1b:00.0": {"Fabric/State": "Completed", "Clocks/SM": "1980 MHz"}}
    assert parse_nvlink("GPU 0: H100\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n") == {0: (2, [1])}
    assert active_mtu_bytes("hca_id:\tmlx5_0\n port:\t1\n max_mtu:\t4096 (5)\n active_mtu:\t2048 (4)\n") == {
        "mlx5_0:1": (2048, 4096)
    }
    assert parse_smi("\x00 : \n" * 50).gpus == {}


def test_names_match_as_nccl_matches_them() -> None:
    assert interface_matches("eth", "eth12")
    assert not interface_matches("=eth1", "eth12")
    assert interface_matches("^docker,lo", "eth0")
    assert not interface_matches("^docker,lo", "docker0")
    assert version("2.21.5") < version("2.100")


def test_expectations_come_from_the_cluster() -> None:
    expect = from_cluster("dgx-h100-superpod-1su", "any")
    assert (expect.num_gpus, expect.num_nics, expect.rate_Bps, expect.mtu_bytes) == (8, 8, 50e9, 4096)
    assert scaled(expect, 0.02).rate_Bps == 1e9


def test_a_host_of_no_group_is_refused(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "c.yaml"
    path.write_text(
        "hosts:\n- {names: 'a[0-1]', host: 8 x H100}\n- {names: 'b[0-1]', host: 4 x T4}\nnetwork: fat-tree 100GbE\n"
    )
    assert from_cluster(path, "b1.example.org").num_gpus == 4
    with pytest.raises(DescriptionError, match='"c9" is not among its hosts'):
        from_cluster(path, "c9")


def test_rules_are_picked_by_pattern() -> None:
    assert {rule.id.split(".")[0] for rule in select(["gpu.*"])} == {"gpu"}
    assert "gpu.direct" not in {rule.id for rule in select(["gpu.*"], ["gpu.direct"])}
    with pytest.raises(UsageError, match='no rule matches "gpo'):
        select(["gpo.*"])
