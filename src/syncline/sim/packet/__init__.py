"""Packet-level simulation: congestion, loss and faults where flows are too coarse.

network = packet_network(load("fat-tree-1024"))
outcome = simulate(network, [permutation(network.fabric, 2e6)], PacketOptions(transport="ndp"))
outcome.completion.p99_s, outcome.counters["trims"], packet_timeline(outcome)
"""

from syncline.sim.packet.chronicle import packet_timeline
from syncline.sim.packet.network import PacketNetwork, packet_network
from syncline.sim.packet.options import LinkChange, PacketOptions, TrafficClass
from syncline.sim.packet.outcome import Completion, Outcome, Progress, RunSamples
from syncline.sim.packet.parameters import Marks, TransportSet, transport_set, transport_sets
from syncline.sim.packet.posting import PacketJob
from syncline.sim.packet.run import PacketRun, Watching, prepare, simulate
from syncline.sim.packet.traffic import Traffic, all_to_all, background, incast, messages, permutation, senders

__all__ = [
    "Completion",
    "LinkChange",
    "Marks",
    "Outcome",
    "PacketJob",
    "PacketNetwork",
    "PacketOptions",
    "PacketRun",
    "Progress",
    "RunSamples",
    "Traffic",
    "TrafficClass",
    "TransportSet",
    "Watching",
    "all_to_all",
    "background",
    "incast",
    "messages",
    "packet_network",
    "packet_timeline",
    "permutation",
    "prepare",
    "senders",
    "simulate",
    "transport_set",
    "transport_sets",
]
