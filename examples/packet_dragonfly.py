"""A dragonfly under adversarial traffic: every group sends to the next, over one cable, unless packets go around."""

from __future__ import annotations

from typing import Any

import numpy as np

from syncline.fabric import ClusterSpec, build
from syncline.sim.packet import PacketOptions, messages, packet_network, permutation, senders, simulate

HOST = {"gpu": "H100", "gpus": 1, "nics": 1}
SHAPE = {"endpoints_per_switch": 2, "switches_per_group": 3, "groups": 6, "cables_per_group_pair": 1}
SPEC = {"hosts": 36, "host": HOST, "network": {"topology": "dragonfly", "link": "NDR", **SHAPE}}
network = packet_network(build(ClusterSpec.model_validate(SPEC)))
ends = senders(network.fabric)
bound_us = 6 * 2e6 * 4162 / 4096 / 50e3

print(f"6 groups of 6 hosts, 2 MB each; the short way needs {bound_us:.0f} us for six messages over one cable")
ways: tuple[tuple[str, Any], ...] = (("minimal", "ecmp"), ("Valiant", "valiant"), ("UGAL", "ugal"))
for name, routing in ways:
    options = PacketOptions("srd", routing)
    hard = simulate(network, [messages(ends, np.roll(ends, -6), 2e6)], options)
    easy = simulate(network, [permutation(network.fabric, 2e6)], options)
    print(f"  {name:8s} adversarial {hard.end_of_run_s * 1e6:6.1f} us, random {easy.end_of_run_s * 1e6:6.1f} us")
print("Going around beats the short way when all want the same cable and loses when they do not; UGAL takes the better "
      "of both.")  # fmt: skip
