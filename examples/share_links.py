"""Three jobs share two links: who gets how much, and which link holds each of them back."""

from __future__ import annotations

from syncline.describe import units
from syncline.sim.flow.engine import Paths
from syncline.sim.flow.maxmin import max_min_rates

links = {"leaf-0 -> spine-0": units.rate("400Gbps"), "spine-0 -> leaf-1": units.rate("100Gbps")}
paths = {"checkpoint": [0], "gradients": [0, 1], "data loading": [1]}

answer = max_min_rates(list(links.values()), Paths.of(paths.values()))
for flow, rate_Bps, bottleneck in zip(paths, answer.rate_Bps, answer.bottleneck, strict=True):
    print(f"{flow:13} {units.show_rate(rate_Bps):>9}   held back by {list(links)[bottleneck]}")
