"""The catalogue of what is counted: each metric's kind, width, unit, and the name Prometheus knows it by.

A reading is a mapping of `Key` to a plain number; sources make readings and know nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Key(NamedTuple):
    """What one number is about: the metric, the device (interface, HCA, GPU), and a part of it (port, priority)."""

    metric: str
    device: str = ""
    part: str = ""


Reading = Mapping[Key, float]


@dataclass(frozen=True)
class Metric:
    """One kind of number. `bits` is the width at which a counter wraps; a gauge has none."""

    name: str
    exported: str
    help: str
    labels: tuple[str, ...] = ("device",)
    bits: int | None = 64

    @property
    def is_counter(self) -> bool:
        return self.bits is not None


def _counter(name: str, exported: str, text: str, *labels: str, bits: int = 64) -> Metric:
    return Metric(name, exported, text, labels or ("device",), bits)


def _gauge(name: str, exported: str, text: str, *labels: str) -> Metric:
    return Metric(name, exported, text, labels or ("device",), None)


_NETDEV = {
    "rx_packets": ("syncline_network_receive_packets", "Packets received."),
    "tx_packets": ("syncline_network_transmit_packets", "Packets sent."),
    "rx_bytes": ("syncline_network_receive_bytes", "Bytes received."),
    "tx_bytes": ("syncline_network_transmit_bytes", "Bytes sent."),
    "rx_errors": ("syncline_network_receive_errs", "Packets received damaged."),
    "tx_errors": ("syncline_network_transmit_errs", "Packets that could not be sent."),
    "rx_dropped": ("syncline_network_receive_drop", "Received packets dropped for want of room."),
    "tx_dropped": ("syncline_network_transmit_drop", "Packets dropped before they were sent."),
    "qdisc_drops": ("syncline_qdisc_drops", "Packets dropped by the queueing discipline of the interface."),
}
_INFINIBAND = {
    "port_rcv_data": ("port_data_received_bytes", "Bytes received (sysfs counts 4-byte words).", 64),
    "port_xmit_data": ("port_data_transmitted_bytes", "Bytes sent (sysfs counts 4-byte words).", 64),
    "port_rcv_packets": ("port_packets_received", "Packets received.", 64),
    "port_xmit_packets": ("port_packets_transmitted", "Packets sent.", 64),
    "port_xmit_wait": ("port_transmit_wait", "Ticks with data to send and no credit to send it.", 32),
    "port_xmit_discards": ("port_discards_transmitted", "Packets discarded because the port was down or busy.", 16),
    "port_rcv_errors": ("port_errors_received", "Packets received with an error.", 16),
    "symbol_error": ("symbol_error", "Symbol errors on the lanes.", 16),
    "link_downed": ("link_downed", "Times the link failed to recover and went down.", 8),
    "link_error_recovery": ("link_error_recovery", "Times the link recovered by itself.", 8),
    "local_link_integrity_errors": ("local_link_integrity_errors", "Times local errors passed the threshold.", 4),
    "excessive_buffer_overrun_errors": ("excessive_buffer_overrun_errors", "Buffer overruns.", 4),
    "out_of_sequence": ("out_of_sequence_packets_received", "Packets out of sequence: loss on the way.", 64),
    "packet_seq_err": ("packet_sequence_errors", "NAKs for a wrong packet sequence.", 64),
    "local_ack_timeout_err": ("local_ack_timeout_errors", "Acknowledgements that did not come in time.", 64),
    "rnr_nak_retry_err": ("rnr_nak_retry_packets_received", "Receiver-not-ready retries exceeded.", 64),
    "roce_adp_retrans": ("roce_adp_retransmits", "Adaptive retransmissions.", 64),
    "out_of_buffer": ("out_of_buffer_drops", "Drops for want of posted receive buffers.", 64),
    "np_cnp_sent": ("np_cnp_packets_sent", "Congestion notifications sent.", 64),
    "np_ecn_marked_roce_packets": ("np_ecn_marked_roce_packets_received", "Packets with a congestion mark.", 64),
    "rp_cnp_handled": ("rp_cnp_packets_handled", "Congestion notifications obeyed.", 64),
}
_GPU = {
    "nvlink_tx_bytes": ("syncline_gpu_nvlink_transmit_bytes", "Bytes sent over NVLink."),
    "nvlink_rx_bytes": ("syncline_gpu_nvlink_receive_bytes", "Bytes received over NVLink."),
    "nvlink_crc_errors": ("syncline_gpu_nvlink_crc_errors", "NVLink packets with a wrong checksum."),
    "nvlink_replay_errors": ("syncline_gpu_nvlink_replay_errors", "NVLink packets sent again."),
    "nvlink_recovery_errors": ("syncline_gpu_nvlink_recovery_errors", "NVLink recoveries."),
    "pcie_replays": ("syncline_gpu_pcie_replays", "PCIe packets sent again."),
}

_NAMED = ("device", "counter")
_AGAIN = "TCP segments sent again, by interface and peer."
METRICS: dict[str, Metric] = {
    m.name: m
    for m in (
        *(_counter(f"net.{n}", exported, text) for n, (exported, text) in _NETDEV.items()),
        _gauge("net.up", "syncline_network_up", "Whether the interface can carry traffic."),
        _gauge("net.speed_Bps", "syncline_network_speed_bytes_per_second", "Rate the interface negotiated."),
        _gauge("net.backlog_bytes", "syncline_qdisc_backlog_bytes", "Bytes that wait in the queueing discipline."),
        _gauge("net.backlog_packets", "syncline_qdisc_backlog_packets", "Packets that wait there."),
        *(
            _counter(f"ib.{n}", f"syncline_infiniband_{exported}", text, "device", "port", bits=bits)
            for n, (exported, text, bits) in _INFINIBAND.items()
        ),
        _gauge("ib.rate_Bps", "syncline_infiniband_rate_bytes_per_second", "Rate of the port.", "device", "port"),
        _gauge("ib.state", "syncline_infiniband_state_id", "State of the port; 4 is active.", "device", "port"),
        _gauge("ib.phys_state", "syncline_infiniband_physical_state_id", "Wire state; 5 is up.", "device", "port"),
        _counter("eth.pause_rx", "syncline_pause_frames_received", "Pause frames received.", "device", "priority"),
        _counter("eth.pause_tx", "syncline_pause_frames_sent", "Pause frames sent.", "device", "priority"),
        _counter("eth.discards", "syncline_phy_discards", "Packets the NIC discarded, by its own name.", *_NAMED),
        _counter("eth.errors", "syncline_phy_errors", "Errors on the wire, by the driver's name for them.", *_NAMED),
        _counter("tcp.out_segments", "syncline_tcp_sent_segments", "TCP segments sent."),
        _counter("tcp.retransmitted", "syncline_tcp_retransmitted_segments", "TCP segments sent again."),
        _counter("tcp.lost", "syncline_tcp_lost_segments", "TCP segments sent again, less those that came twice."),
        _counter("tcp.path_retransmitted", "syncline_path_retransmitted_segments", _AGAIN, "device", "peer"),
        _counter("tcp.timeouts", "syncline_tcp_timeouts", "TCP retransmission timeouts."),
        *(_counter(f"gpu.{n}", exported, text, "gpu") for n, (exported, text) in _GPU.items()),
        _gauge("gpu.utilisation", "syncline_gpu_utilisation_ratio", "Share of time with a kernel running.", "gpu"),
        _gauge("gpu.memory_used_bytes", "syncline_gpu_memory_used_bytes", "Memory in use.", "gpu"),
        _gauge("gpu.power_w", "syncline_gpu_power_watts", "Power drawn.", "gpu"),
        _gauge("gpu.nvlinks_active", "syncline_gpu_nvlinks_active", "NVLinks that are up.", "gpu"),
        _gauge("gpu.nvlink_rate_Bps", "syncline_gpu_nvlink_rate_bytes_per_second", "Rate of NVLink, one way.", "gpu"),
    )
}
