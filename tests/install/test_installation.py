"""A fabric put up: ports, racks, cables, addresses, arithmetic, and the files of switches and hosts."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from io import StringIO
from ipaddress import ip_network
from pathlib import Path

import pytest
import yaml

from syncline.auditing.checks.roce import parse_mlnx_qos
from syncline.errors import FabricError, UsageError
from syncline.fabric import Fabric, load
from syncline.fabric.pause import quanta
from syncline.host.lldp import parse_lldp
from syncline.install.installation import Installation, install
from syncline.install.qos import ALPHA, headroom
from syncline.install.room import Room

CLUSTER = {
    "name": "two-tier-16",
    "hosts": 16,
    "host": {"gpu": "H100", "gpus": 8, "nics": 2, "nic": "ConnectX-7", "link": "400GbE"},
    "network": {"topology": "leaf-spine", "link": "400GbE", "switch": "SN5600", "hosts_per_leaf": 4, "spines": 4},
}


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    return load(CLUSTER)


@pytest.fixture(scope="module")
def sonic(fabric: Fabric) -> Installation:
    return install(fabric, system="sonic")


@pytest.fixture(scope="module")
def frr(fabric: Fabric) -> Installation:
    return install(fabric, system="frr")


def test_every_cable_joins_two_ports_that_no_other_uses(sonic: Installation, fabric: Fabric) -> None:
    ends = [end[2:] for row in sonic.cables for end in row.ends]
    assert len(sonic.cables) == 16 * 2 + 4 * 8  # access: 2 a host; 8 uplinks on each of 4 leaves
    assert len(set(ends)) == len(ends)
    assert Counter(row.wire.b.device for row in sonic.cables if row.wire.b.device.startswith("spine")) == {
        f"spine-0{n}": 8 for n in range(4)
    }


def test_a_cage_broken_out_holds_ports_of_one_rate() -> None:
    cluster = {
        "hosts": 8,
        "host": {"gpu": "H100", "gpus": 8, "nics": 1, "nic": "ConnectX-7", "link": "400GbE"},
        "network": {"topology": "leaf-spine", "link": "400GbE", "uplink": "800GbE", "switch": "SN5600",
                    "hosts_per_leaf": 3, "spines": 1},
    }  # fmt: skip
    found = install(load(cluster), system="nvue")
    leaf = next(view for view in found.switches if view.name == "leaf-00")
    assert [port.name for port in leaf.ports] == ["swp1s0", "swp1s1", "swp2s0", "swp3", "swp4"]


def test_racks_keep_their_limits_and_leaves_stand_with_their_hosts(sonic: Installation) -> None:
    assert sorted(place.name for rack in sonic.floor.racks for place in rack.places) == sorted(
        (*sonic.fabric.host_names, *sonic.wiring.switch_names)
    )
    for rack in sonic.floor.racks:
        assert rack.used_u <= 48 and rack.power_w <= 45_000 and rack.weight_kg <= 1360
    first = sonic.floor.where["host-00"][0]
    assert sonic.floor.where["leaf-00"][0] is first
    # 4 hosts of 8U below, the leaf on top: 28 U between the middle of host-00 and that of leaf-00, 0.6 m of ends, 10 %
    assert sonic.floor.way_m("host-00", "leaf-00") == pytest.approx((29 * 0.04445 + 0.6) * 1.1)


def test_a_rack_that_draws_less_needs_more_racks(fabric: Fabric) -> None:
    few, many = install(fabric, Room(rack_power_w=45e3)), install(fabric, Room(rack_power_w=22e3))
    assert len(many.floor.racks) > len(few.floor.racks)
    assert max(row.length_m for row in many.cables) > max(row.length_m for row in few.cables)
    with pytest.raises(UsageError, match="does not fit a rack of 48U, 5 kW"):
        install(fabric, Room(rack_power_w=5e3))


def test_cable_type_follows_length_and_the_bill_adds_up(sonic: Installation) -> None:
    assert all(row.length_m >= row.measured_m for row in sonic.cables)
    assert {row.kind for row in sonic.cables if row.length_m <= 3} == {"dac"}
    assert "dac" not in {row.kind for row in sonic.cables if row.length_m > 3}
    assert sum(line.count for line in sonic.cable_bill) == len(sonic.cables)
    assert sum(line.price_usd for line in sonic.cable_bill) == pytest.approx(
        sum(r.price_usd or 0 for r in sonic.cables)
    )
    rows = list(csv.DictReader(StringIO(sonic.files["cables.csv"])))
    assert len(rows) == len(sonic.cables) and rows[0]["label"] == "C000001"


def test_addresses_do_not_overlap_and_as_numbers_forbid_valleys(sonic: Installation) -> None:
    assert sonic.plan is not None
    prefixes = [ip_network(str(s.prefix)) for s in sonic.plan.switches.values() if s.prefix]
    assert not any(a.overlaps(b) for i, a in enumerate(prefixes) for b in prefixes[i + 1 :])
    for port in sonic.plan.ports.values():
        assert port.address in next(s.prefix for s in sonic.plan.switches.values() if s.name == port.leaf)  # type: ignore[operator]
    numbers = {name: s.asn for name, s in sonic.plan.switches.items()}
    assert len({numbers[name] for name in numbers if name.startswith("leaf")}) == 4
    assert len({numbers[name] for name in numbers if name.startswith("spine")}) == 1


def test_headroom_by_hand() -> None:
    found = headroom(50e9, 100.0)  # 400 Gb/s over 100 m
    assert found.flight_bytes == pytest.approx(2 * 100 * 5e-9 * 50e9)  # 50,000 B
    assert found.reaction_bytes == 905 * 64
    total = 50_000 + 2 * 9216 + 64 + 905 * 64
    assert found.headroom_bytes == -(-total // 256) * 256
    assert "= 50,000 B in flight" in found.arithmetic
    assert quanta(800e9) == 2 * quanta(400e9)
    assert [quanta(rate * 1e9) for rate in (50, 100, 200)] == [147, 394, 453]  # IEEE 802.3 31B.3.7


def test_marks_come_before_pauses(sonic: Installation) -> None:
    buffer = sonic.buffers["leaf-00"]
    high = max(buffer.mark_all_bytes.values())

    def pause_from_bytes(busy: int) -> float:
        """Return how long a queue grows before PFC acts, when so many queues are full: alpha B / (1 + alpha n)."""
        return ALPHA * buffer.shared_bytes / (1 + ALPHA * busy)

    assert pause_from_bytes(buffer.marks_before_pause) >= high > pause_from_bytes(buffer.marks_before_pause + 1)


def test_frr_has_a_neighbour_for_every_cable_and_as_many_paths(frr: Installation) -> None:
    text = frr.files["switches/leaf-02/frr.conf"]
    assert len(re.findall(r"^ neighbor \S+ interface peer-group FABRIC$", text, re.MULTILINE)) == 8
    assert "  maximum-paths 8\n" in text
    assert "  maximum-paths 2\n" in frr.files["switches/spine-00/frr.conf"]
    seeds = {
        frr.files[f"switches/{name}/sysctl.conf"].partition("hash_seed = ")[2][:2] for name in ("leaf-00", "spine-00")
    }
    assert len(seeds) == 2, "a seed for each tier"


def test_discover_reads_the_cabling_back(sonic: Installation) -> None:
    for host in sonic.fabric.host_names:
        seen = parse_lldp(sonic.files[f"hosts/{host}/lldp.json"])
        for row in (row for row in sonic.cables if row.ends[0][2].startswith(f"{host}/")):
            nic = row.ends[0][2].rpartition("-")[2]
            assert seen[f"rail{nic}"] == (row.ends[1][2], row.ends[1][3])


def test_the_audit_finds_the_nic_set_as_the_switches_are(sonic: Installation) -> None:
    """The script's settings, told as `mlnx_qos` tells them, are what the audit's RoCE rules ask for."""
    script = sonic.files["hosts/host-00/qos.sh"]
    pfc = re.search(r"mlnx_qos -i rail0 --pfc (\S+)", script)
    assert pfc is not None
    marks = re.findall(r"mlnx_qos -i rail0 --dscp2prio set,(\d+),(\d)", script)
    told = "Priority trust state: dscp\n" + "".join(f"prio:{prio} dscp:{dscp},\n" for dscp, prio in marks)
    qos = parse_mlnx_qos(told + "enabled " + " ".join(pfc.group(1).split(",")) + "\n")
    assert qos is not None
    assert qos.trust == "dscp"
    assert qos.priority_of_dscp[106 >> 2] in qos.lossless, "NCCL_IB_TC=106 rides in the lossless class"
    assert len(qos.lossless) == 1


def test_netplan_is_yaml_with_a_table_for_each_rail(sonic: Installation) -> None:
    told = yaml.safe_load(sonic.files["hosts/host-03/60-fabric.yaml"])["network"]["ethernets"]
    assert set(told) == {"rail0", "rail1"}
    assert {route["table"] for one in told.values() for route in one["routes"] if "table" in route} == {100, 101}


def test_what_was_changed_by_hand_is_found(frr: Installation, tmp_path: Path) -> None:
    frr.write(tmp_path)
    assert frr.differences(tmp_path) == ()
    path = tmp_path / "switches/leaf-00/frr.conf"
    path.write_text(path.read_text().replace("maximum-paths 8", "maximum-paths 4"))
    (tmp_path / "racks.csv").unlink()
    found = frr.differences(tmp_path)
    assert found[0] == "racks.csv: missing"
    assert found[1].endswith('"maximum-paths 4" instead of "maximum-paths 8"')


def test_infiniband_gets_a_subnet_manager_and_clouds_get_no_switch_files() -> None:
    subnet = install(load("h100-64-rail"))
    assert {name for name in subnet.files if name.startswith("opensm/")} == {
        "opensm/opensm.conf", "opensm/partitions.conf", "opensm/switches.txt", "opensm/guids.sh"
    }  # fmt: skip
    assert "routing_engine ar_updn,updn\n" in subnet.files["opensm/opensm.conf"]
    assert "spine-00 root\n" in subnet.files["opensm/switches.txt"]
    cloud = install(load({"hosts": 8, "host": "p5", "network": "fat-tree EFAv2"}))
    assert cloud.skipped == {"switch configurations": "the cloud runs these switches"}
    assert not [name for name in cloud.files if name.startswith("switches/")]


def test_planes_are_subnets_with_a_manager_each() -> None:
    plane = {"topology": "leaf-spine", "link": "NDR200", "switch": "QM9700", "hosts_per_leaf": 2, "spines": 1}
    host = {"gpu": "H100", "gpus": 8, "nics": 2, "nic": "ConnectX-7", "link": "NDR200", "ports_per_nic": 2}
    network = {"topology": "multi-plane", "planes": 2, "plane": plane}
    files = install(load({"hosts": 4, "host": host, "network": network})).files
    told = [files[f"opensm/subnet-{n}/switches.txt"].splitlines()[1:] for n in (0, 1)]
    assert [len(rows) for rows in told] == [3, 3]
    assert not set(told[0]) & set(told[1])
    assert all(sum(row.endswith(" root") for row in rows) == 1 for rows in told)


def test_what_has_no_network_is_refused() -> None:
    with pytest.raises(FabricError, match="no network cables"):
        install(load({"hosts": 1, "host": "8 x H100"}))
    with pytest.raises(UsageError, match='--system cannot be "ios"'):
        install(load("h100-64-rail"), system="ios")


_MAP_NAME = r"[a-zA-Z0-9][-a-zA-Z0-9_]{0,31}"
_COLOURS = ("green", "yellow", "red")
#: SONiC's YANG models (sonic-net/sonic-buildimage, src/sonic-yang-models, read 2026-11-16) for what our files hold: the
#: form of a key and of each field, a range, or the table whose rows a field names. `config load` refuses the rest.
#: `benchmarks/rig/sonic_yang.py` asks the models themselves; this keeps its answer where no validator is installed.
YANG: dict[str, tuple[str, dict[str, str | tuple[int, int]]]] = {
    "DEVICE_METADATA": ("localhost", {  # sonic-device_metadata 2021-02-27
        "hostname": r".{1,63}", "hwsku": r".{1,255}", "type": "ToRRouter|LeafRouter|SpineRouter",
        "bgp_asn": (0, 2**32 - 1), "docker_routing_config_mode": "separated|unified|split|split-unified",
        "buffer_model": "dynamic|traditional",
    }),
    "PORT": (r".{1,128}", {  # sonic-port 2026-04-11
        "alias": r".{1,128}", "lanes": r".{1,128}", "index": (0, 65535), "speed": (1, 1_600_000), "mtu": (68, 9216),
        "admin_status": "up|down", "fec": "rs|fc|none|auto", "description": r".{0,255}",
    }),
    "LOOPBACK_INTERFACE": (r".{1,15}(\|[\d.]+/\d+)?", {}),  # sonic-loopback-interface 2021-04-05
    "INTERFACE": (r"PORT(\|[\d.]+/\d+)?", {"ipv6_use_link_local_only": "enable|disable"}),  # sonic-interface 2025-03-06
    "DEVICE_NEIGHBOR": (r".{1,255}", {"name": r".{1,255}", "port": r".{1,255}"}),  # sonic-device_neighbor 2020-04-10
    "SCHEDULER": (r".+", {"type": "DWRR|WRR|STRICT", "weight": (1, 100)}),  # sonic-scheduler 2021-04-01
    "WRED_PROFILE": (_MAP_NAME, {  # sonic-wred-profile 2026-06-23
        "ecn": "ecn_(none|all|green|yellow|red|green_yellow|green_red|yellow_red)",
        **{f"wred_{colour}_enable": "true|false" for colour in _COLOURS},
        **{f"{colour}_{end}_threshold": (0, 2**64 - 1) for colour in _COLOURS for end in ("min", "max")},
        **{f"{colour}_drop_probability": (0, 100) for colour in _COLOURS},
    }),
    "QUEUE": (r"PORT\|\d", {"scheduler": "-> SCHEDULER", "wred_profile": "-> WRED_PROFILE"}),  # sonic-queue 2021-04-01
    "PORT_QOS_MAP": ("PORT|global", {  # sonic-port-qos-map 2019-05-15
        "pfc_enable": "([0-7](,[0-7])*)?", "pfcwd_sw_enable": "([0-7](,[0-7])*)?",
        "dscp_to_tc_map": "-> DSCP_TO_TC_MAP", "tc_to_queue_map": "-> TC_TO_QUEUE_MAP",
        "tc_to_pg_map": "-> TC_TO_PRIORITY_GROUP_MAP", "pfc_to_queue_map": "-> MAP_PFC_PRIORITY_TO_QUEUE",
    }),
    "PFC_WD": ("PORT|GLOBAL", {  # sonic-pfcwd 2021-07-01
        "action": "drop|forward|alert", "detection_time": (100, 5000), "restoration_time": (100, 60_000),
        "POLL_INTERVAL": (100, 1000),
    }),
    "BUFFER_POOL": (r".+", {  # sonic-buffer-pool, -profile, -pg 2021-07-01
        "type": "ingress|egress|both", "mode": "static|dynamic", "size": (0, 2**64 - 1), "xoff": (0, 2**64 - 1),
    }),
    "BUFFER_PROFILE": (r".+", {
        "pool": "-> BUFFER_POOL", "size": (0, 2**64 - 1), "xoff": (0, 2**64 - 1), "dynamic_th": (-8, 7),
        "static_th": (0, 2**64 - 1),
    }),
    "BUFFER_PG": (r"PORT\|[0-7](-[0-7])?", {"profile": "-> BUFFER_PROFILE"}),
    "BUFFER_QUEUE": (r"PORT\|[0-9](-[0-9])?", {"profile": "-> BUFFER_PROFILE"}),  # sonic-buffer-queue 2021-07-01
    "CABLE_LENGTH": (_MAP_NAME, {"*": r"[0-9]+m|None"}),  # sonic-cable-length 2021-11-11
    "DSCP_TO_TC_MAP": (_MAP_NAME, {"*": (0, 15)}),  # the four maps 2021-04-15
    "TC_TO_QUEUE_MAP": (_MAP_NAME, {"*": (0, 9)}),
    "TC_TO_PRIORITY_GROUP_MAP": (_MAP_NAME, {"*": (0, 7)}),
    "MAP_PFC_PRIORITY_TO_QUEUE": (_MAP_NAME, {"*": (0, 7)}),
}  # fmt: skip
_NEEDED = {
    "PORT": {"lanes", "speed"}, "BUFFER_POOL": {"type", "mode"}, "BUFFER_PROFILE": {"size", "pool"},
}  # fmt: skip


def _fits(rule: str | tuple[int, int], value: str, tables: dict[str, dict[str, object]]) -> bool:
    if isinstance(rule, tuple):
        return rule[0] <= int(value) <= rule[1]
    if rule.startswith("-> "):
        return value in tables[rule[3:]]
    return re.fullmatch(rule, value) is not None


def test_sonic_files_keep_the_rules_of_its_yang_models(sonic: Installation) -> None:
    for view in sonic.switches:
        tables = json.loads(sonic.files[f"switches/{view.name}/config_db.json"])
        assert set(tables) == {*YANG, "SWITCH_HASH"}
        for table, (key_rule, rules) in YANG.items():
            for key, row in tables[table].items():
                port, _, rest = key.partition("|")
                told = f"PORT|{rest}" if rest else "PORT"
                form = told if "PORT" in key_rule and port in tables["PORT"] else key
                assert re.fullmatch(key_rule, form), (table, key)
                assert row.keys() >= _NEEDED.get(table, set())
                for field, value in row.items():
                    rule = rules.get("*", rules.get(field))
                    assert rule is not None and _fits(rule, value, tables), (table, key, field, value)
        for row in tables["WRED_PROFILE"].values():
            assert all(int(row[f"{one}_max_threshold"]) >= int(row[f"{one}_min_threshold"]) for one in _COLOURS)
        watched = [row for key, row in tables["PFC_WD"].items() if key != "GLOBAL"]
        poll = int(tables["PFC_WD"]["GLOBAL"]["POLL_INTERVAL"])
        assert all(int(row[f"{what}_time"]) >= poll for row in watched for what in ("detection", "restoration"))
        assert set(tables["SWITCH_HASH"]["GLOBAL"]["ecmp_hash"]) <= {  # sonic-hash 2023-09-25
            "SRC_IP", "DST_IP", "IP_PROTOCOL", "L4_SRC_PORT", "L4_DST_PORT"
        }  # fmt: skip
        lanes = [lane for row in tables["PORT"].values() for lane in row["lanes"].split(",")]
        assert len(lanes) == len(set(lanes))
        assert set(tables["DSCP_TO_TC_MAP"]["AZURE"]) == {str(n) for n in range(64)}
        assert set(tables["CABLE_LENGTH"]["AZURE"]) == set(tables["PORT"])


# Forms of `nv set` as the NVUE command list has them (CumulusNetworks/docs, Cumulus Linux 5.6 to 5.14);
# benchmarks/rig/nvue_list.py asks a list as the switch prints it.
_NVUE = (
    r"system hostname \S+", r"system forwarding hash-seed \d+",
    r"system forwarding ecmp-hash ((source|destination)-(ip|port)|ip-protocol) on",
    r"interface lo ip address \S+/32", r"interface swp\d+ link breakout [248]x",
    r"interface \S+ link mtu \d+", r'interface \S+ description ".*"', r"interface \S+ ip address \S+/31",
    r"interface \S+ router adaptive-routing enable on", r"router adaptive-routing enable on",
    r"router bgp (autonomous-system|router-id) \S+",
    r"vrf default router bgp peer-group \S+ (remote-as external|timers (keepalive|hold) \d+)",
    r"vrf default router bgp path-selection multipath aspath-ignore on",
    r"vrf default router bgp address-family ipv4-unicast (multipaths ebgp \d+|network \S+)",
    r"vrf default router bgp neighbor \S+ (peer-group \S+|type unnumbered)",
    r"vrf default router static \S+ via blackhole",
    r"qos mapping default-global (trust l3|dscp \d+ switch-priority \d)",
    r"qos egress-queue-mapping default-global switch-priority \d traffic-class \d",
    r"qos egress-scheduler default-global traffic-class \d (mode (dwrr|strict)|bw-percent \d+)",
    r"qos pfc default-global (switch-priority \d|tx enable|rx enable|cable-length \d+)",
    r"qos pfc-watchdog (polling-interval|robustness) \d+", r"interface \S+ qos pfc-watchdog state enable",
    r"qos congestion-control default-global traffic-class \d "
    r"(ecn enable|red disable|min-threshold \d+|max-threshold \d+|probability \d+)",
)  # fmt: skip


def test_nvue_commands_have_the_forms_of_the_reference_and_say_why(fabric: Fabric) -> None:
    found = install(fabric, system="nvue")
    for view in found.switches:
        lines = found.files[f"switches/{view.name}/nvue.sh"].splitlines()
        commands = [line.removeprefix("nv set ") for line in lines if line.startswith("nv set ")]
        strange = [line for line in commands if not any(re.fullmatch(form, line) for form in _NVUE)]
        assert strange == []
        assert sum(line.startswith("#") for line in lines) > 20
        assert sum("pfc-watchdog state enable" in line for line in lines) == len(view.ports)


#: What the same list says of numbers: after these words, from and to.
_NVUE_RANGES = {
    "link mtu": (552, 9216), "hash-seed": (0, 2**32 - 1), "autonomous-system": (1, 2**32 - 1), "keepalive": (1, 65535),
    " hold": (3, 65535), "multipaths ebgp": (1, 128), " dscp": (0, 63), "switch-priority": (0, 7),
    "traffic-class": (0, 7), "bw-percent": (1, 100), "cable-length": (1, 100_000), "probability": (1, 100),
    "polling-interval": (100, 5000), "robustness": (1, 1000),
}  # fmt: skip


def test_nvue_numbers_are_in_the_ranges_of_the_reference(fabric: Fabric) -> None:
    for name, text in install(fabric, system="nvue").files.items():
        if not name.endswith("nvue.sh"):
            continue
        commands = "\n".join(line for line in text.splitlines() if line.startswith("nv set "))
        for words, (low, high) in _NVUE_RANGES.items():
            found = [int(number) for number in re.findall(rf"{words} (\d+)", commands)]
            assert found and all(low <= number <= high for number in found), (words, found)
        assert sum(int(share) for share in re.findall(r"bw-percent (\d+)", commands)) <= 100


def test_eos_names_hash_fields_as_its_chip_has_them(fabric: Fabric) -> None:
    jericho = {"hosts": 4, "host": "8 x H100", "network": {"topology": "leaf-spine", "link": "400GbE",
                                                           "switch": "7808R3", "hosts_per_leaf": 2}}  # fmt: skip
    assert "trident" not in install(load(jericho), system="eos").files["switches/leaf-00/startup-config"]
    assert "ip load-sharing trident" in install(
        load(jericho | {"network": {"topology": "leaf-spine", "link": "400GbE", "switch": "7060X6-64PE",
                                    "hosts_per_leaf": 2}}), system="eos",
    ).files["switches/leaf-00/startup-config"]  # fmt: skip


def test_eos_marks_by_dscp_and_pauses_one_class(fabric: Fabric) -> None:
    network = {"topology": "leaf-spine", "link": "400GbE", "switch": "7060X6-64PE", "hosts_per_leaf": 1}
    text = install(load({"hosts": 2, "host": "8 x H100", "network": network}), system="eos").files[
        "switches/leaf-00/startup-config"
    ]
    assert "qos map dscp 26 to traffic-class 3\n" in text
    assert text.count("no-drop") == 1
    assert len(re.findall(r"^   neighbor interface \S+ peer-group FABRIC", text, re.MULTILINE)) == 8
    with pytest.raises(UsageError, match="eos does not run on leaf-00, a SN5600 of nvidia"):
        install(fabric, system="eos")
    for switch, vendor in (("TH4-64x400G", "broadcom"), ("Minipack2", "meta")):
        white = load({"hosts": 2, "host": "8 x H100", "network": network | {"switch": switch}})
        with pytest.raises(UsageError, match=f"eos does not run on leaf-00, a {switch} of {vendor}"):
            install(white, system="eos")


def test_sonic_names_pools_and_neighbours_as_its_daemons_do(sonic: Installation) -> None:
    view = sonic.switches[0]
    tables = json.loads(sonic.files[f"switches/{view.name}/config_db.json"])
    assert set(tables["BUFFER_POOL"]) == {"ingress_lossless_pool", "egress_lossless_pool", "egress_lossy_pool"}
    first, last = view.ports[0], view.ports[-1]
    lossless = (
        f"pg_lossless_{tables['PORT'][first.name]['speed']}_{tables['CABLE_LENGTH']['AZURE'][first.name]}_profile"
    )
    assert tables["BUFFER_PG"][f"{first.name}|3"] == {"profile": lossless}
    assert tables["BUFFER_QUEUE"][f"{first.name}|3"] == {"profile": "egress_lossless_profile"}
    assert tables["BUFFER_QUEUE"][f"{first.name}|0"] == {"profile": "egress_lossy_profile"}
    assert first.host is not None and last.host is None
    assert tables["DEVICE_NEIGHBOR"][first.name] == {"name": first.host.host, "port": first.host.interface}
    there = json.loads(sonic.files[f"switches/{last.far_device}/config_db.json"])["PORT"][last.far_port]
    assert tables["DEVICE_NEIGHBOR"][last.name] == {"name": last.far_device, "port": there["alias"]}
