"""Sources read what is there, leave out what is not, and never raise."""

from __future__ import annotations

import socket
import types
from contextlib import closing
from pathlib import Path

import pytest
from tests.watch import trees

from syncline.errors import WatchError
from syncline.host.netlink import Connection, Netlink
from syncline.watch.metric import Key
from syncline.watch.sources.ethtool import EthtoolSource
from syncline.watch.sources.gpu import GpuSource
from syncline.watch.sources.infiniband import InfinibandSource
from syncline.watch.sources.netdev import NetdevSource
from syncline.watch.sources.source import SourceTree
from syncline.watch.sources.tcp import LostSegments, TcpPathSource, TcpSource

LINUX = pytest.mark.skipif(not hasattr(socket, "AF_NETLINK"), reason="netlink is Linux's")


def test_interfaces_of_a_captured_tree(tmp_path: Path) -> None:
    trees.proc_net_dev(tmp_path, eth0=(1000, 2000), lo=(5, 5))
    trees.interface(tmp_path, "eth0", 25_000)
    reading = NetdevSource(SourceTree(tmp_path)).read()
    assert reading[Key("net.rx_bytes", "eth0")] == 1000
    assert reading[Key("net.tx_bytes", "eth0")] == 2000
    assert reading[Key("net.speed_Bps", "eth0")] == 25e9 / 8
    assert reading[Key("net.up", "eth0")] == 1.0
    assert not [key for key in reading if key.device == "lo"]


def test_an_interface_that_goes_is_left_out(tmp_path: Path) -> None:
    source = NetdevSource(SourceTree(tmp_path))
    assert source.read() == {}
    trees.proc_net_dev(tmp_path, eth0=(1, 1), eth1=(1, 1))
    assert {key.device for key in source.read()} == {"eth0", "eth1"}
    trees.proc_net_dev(tmp_path, eth1=(1, 1))
    assert {key.device for key in source.read()} == {"eth1"}


@pytest.mark.parametrize("text", ["", "garbage", "eth0: 1 2", "eth0: a b c d e f g h i j k l m n o p", "\0\0\0"])
def test_a_damaged_proc_net_dev_gives_nothing(tmp_path: Path, text: str) -> None:
    trees.write(tmp_path, "proc/net/dev", text)
    assert [k for k in NetdevSource(SourceTree(tmp_path)).read() if k.metric == "net.rx_bytes"] == []


@LINUX
def test_netlink_and_proc_agree_on_loopback() -> None:
    with closing(NetdevSource(SourceTree(), pattern="lo")) as source:
        live = source.read()
        before = int(Path("/sys/class/net/lo/statistics/rx_bytes").read_text())
        again = source.read()
    assert live[Key("net.rx_bytes", "lo")] <= before <= again[Key("net.rx_bytes", "lo")]
    assert live[Key("net.up", "lo")] == 1.0
    with Netlink() as route:
        assert [i.name for i in route.interfaces() if i.number == 1] == ["lo"]
        assert route.addresses()["127.0.0.1"] == 1


@LINUX
def test_a_namespace_that_is_not_there_is_one_clear_error() -> None:
    with pytest.raises(WatchError, match="cannot read the interfaces of this network namespace"):
        NetdevSource(SourceTree(), netns="/run/netns/no-such-namespace", prefix="x")


def test_infiniband_counts_words_as_bytes_and_skips_what_it_cannot_read(tmp_path: Path) -> None:
    trees.infiniband_port(
        tmp_path,
        "mlx5_0",
        port_rcv_data=10,
        port_xmit_data=20,
        symbol_error=3,
        out_of_sequence=7,
        link_downed="N/A (no PMA)",
    )
    reading = InfinibandSource(SourceTree(tmp_path)).read()
    assert reading[Key("ib.port_rcv_data", "mlx5_0", "1")] == 40
    assert reading[Key("ib.port_xmit_data", "mlx5_0", "1")] == 80
    assert reading[Key("ib.symbol_error", "mlx5_0", "1")] == 3
    assert reading[Key("ib.out_of_sequence", "mlx5_0", "1")] == 7
    assert reading[Key("ib.rate_Bps", "mlx5_0", "1")] == 50e9
    assert reading[Key("ib.state", "mlx5_0", "1")] == 4
    assert Key("ib.link_downed", "mlx5_0", "1") not in reading


def test_tcp_tables_by_name(tmp_path: Path) -> None:
    trees.snmp(tmp_path, 1000, 12, 3)
    reading = TcpSource(SourceTree(tmp_path)).read()
    assert {key.metric: value for key, value in reading.items()} == {
        "tcp.out_segments": 1000,
        "tcp.retransmitted": 12,
        "tcp.lost": 0,
        "tcp.timeouts": 3,
    }
    assert TcpSource(SourceTree(tmp_path / "nothing")).read() == {}


def test_segments_that_came_twice_are_not_lost(tmp_path: Path) -> None:
    source = TcpSource(SourceTree(tmp_path))

    def lost(again: int, twice: int) -> float:
        trees.snmp(tmp_path, 1000, again, twice=twice)
        return source.read()[Key("tcp.lost", "host")]

    assert [lost(12, 10), lost(20, 10), lost(20, 18), lost(23, 18), lost(23, 18)] == [0, 0, 0, 0, 3]


def test_duplicates_that_are_not_all_reported_are_no_losses() -> None:
    """A hundred segments overtake each other between two looks; three of the reports are merged with others."""
    soon, late = LostSegments(0, 0), LostSegments(0, 0)
    assert sum(soon.look(100 * look, 97 * look) for look in range(1, 100)) == 0
    assert sum(late.look(100 * look, 97 * (look - 1)) for look in range(1, 100)) == 0
    assert soon.look(10_300, 97 * 100) == 0  # three hundred more were lost, which the next look tells
    assert soon.look(10_400, 97 * 101) == 400 - 2 * 1.5 * 97


@LINUX
def test_a_connection_that_sent_again_what_came_twice_lost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of five segments that were sent again, one is excused by the next look, and maybe another; a sixth is not."""
    told = iter(((0, 0), (5, 0), (6, 1), (6, 1), (6, 1)))

    def connections(family: int) -> list[Connection]:
        return [Connection("10.0.0.1", "10.0.0.2", b"1", 9, *next(told))] if family == socket.AF_INET else []

    with closing(TcpPathSource()) as source:
        monkeypatch.setattr(source, "_read_resent", lambda: None)
        monkeypatch.setattr(source, "_learn_addresses", lambda route: source.owners.update({"10.0.0.1": "eth0"}))
        monkeypatch.setattr(source._diag, "connections", connections)
        assert [round(sum(source.read().values()), 1) for _ in range(5)] == [0, 0, 3.5, 4.5, 4.5]


def test_ethtool_knows_pauses_discards_and_errors_by_the_names_drivers_use() -> None:
    statistics = {
        "rx_prio3_pause": 5,
        "tx_prio3_pause": 6,
        "rx_pause_ctrl_phy": 7,
        "rx_discards_phy": 8,
        "rx_crc_errors_phy": 9,
        "rx_packets": 1,
        "rx_prio3_bytes": 2,
        "rx_out_of_buffer": 4,
    }
    reading = EthtoolSource(["eth0"], driver=lambda device: statistics).read()
    assert reading == {
        Key("eth.pause_rx", "eth0", "3"): 5,
        Key("eth.pause_tx", "eth0", "3"): 6,
        Key("eth.pause_rx", "eth0", "global"): 7,
        Key("eth.discards", "eth0", "rx_discards_phy"): 8,
        Key("eth.errors", "eth0", "rx_crc_errors_phy"): 9,
        Key("eth.discards", "eth0", "rx_out_of_buffer"): 4,
    }


def test_a_driver_without_statistics_is_asked_once_and_a_device_that_is_gone_again_and_again() -> None:
    asked: list[str] = []

    def driver(device: str) -> dict[str, int]:
        asked.append(device)
        raise OSError(95 if device == "veth0" else 19, "no")

    source = EthtoolSource(["veth0", "eth0"], driver=driver)
    for _ in range(3):
        assert source.read() == {}
    assert asked == ["veth0", "eth0", "eth0", "eth0"]


@LINUX
def test_the_kernel_answers_the_ioctl_or_refuses_cleanly() -> None:
    with closing(EthtoolSource(["lo", "no-such-device"])) as source:
        assert all(key.device == "lo" for key in source.read())


class FakeNvml(types.SimpleNamespace):
    """Answers as pynvml does, for two GPUs of which the second has fallen off the bus."""

    class NVMLError(Exception):
        pass

    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX = 138, 139
    NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL, NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON = 90, 91
    NVML_FEATURE_ENABLED = 1

    def nvmlInit(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetFieldValues(self, gpu: int, fields: list) -> list:
        if gpu == 1:
            raise self.NVMLError("GPU is lost")
        value = {138: 1000, 139: 2000, 90: 4, 91: 26562}
        ids = [field[0] if isinstance(field, tuple) else field for field in fields]
        return [
            types.SimpleNamespace(fieldId=i, nvmlReturn=0, value=types.SimpleNamespace(ullVal=value[i])) for i in ids
        ]

    def nvmlDeviceGetUtilizationRates(self, gpu: int) -> object:
        return types.SimpleNamespace(gpu=87)

    def nvmlDeviceGetMemoryInfo(self, gpu: int) -> object:
        return types.SimpleNamespace(used=123)

    def nvmlDeviceGetPowerUsage(self, gpu: int) -> int:
        return 650_000

    def nvmlDeviceGetPcieReplayCounter(self, gpu: int) -> int:
        return 2

    def nvmlDeviceGetNvLinkState(self, gpu: int, link: int) -> int:
        if link >= 18:
            raise self.NVMLError("no such link")
        return 1


def test_gpus_through_nvml_and_one_that_is_lost() -> None:
    source = GpuSource(FakeNvml())
    reading = source.read()
    assert reading[Key("gpu.nvlink_tx_bytes", "0")] == 1000 * 1024
    assert reading[Key("gpu.nvlink_replay_errors", "0")] == 4
    assert reading[Key("gpu.utilisation", "0")] == 0.87
    assert reading[Key("gpu.nvlinks_active", "0")] == 18
    assert reading[Key("gpu.nvlink_rate_Bps", "0")] == 26562e6 * 18
    assert "GPU 1: GPU is lost" in source.problem
    assert Key("gpu.nvlink_tx_bytes", "1") not in reading


@LINUX
def test_connections_of_loopback_cross_no_link() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as _,
        closing(TcpPathSource()) as source,
    ):
        assert [key for key in source.read() if key.device == "lo"] == []
        assert source.problem == ""
        assert source.owners["127.0.0.1"] == "lo"


def test_a_root_does_not_follow_what_it_cannot_read(tmp_path: Path) -> None:
    root = SourceTree(tmp_path)
    assert root.text("none") is None
    trees.write(tmp_path, "word", "N/A")
    assert root.number("word") is None
    trees.write(tmp_path, "hex", "0x10")
    assert root.number("hex") == 16
