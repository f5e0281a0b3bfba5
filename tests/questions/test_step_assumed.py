"""A step says first what the cluster's file left open."""

from __future__ import annotations

import syncline


def test_what_was_assumed_is_said_before_the_step() -> None:
    cluster = {"hosts": 4, "host": "8 x A100", "network": "leaf-spine 100GbE"}
    answer = syncline.step(cluster, {"model": "llama3-8b", "batch": {"global": 64}, "parallel": {"zero": "3"}})
    text = str(answer)
    assert "assumed     8 NICs a host, one a GPU: 100 Gb/s a GPU" in text
    assert text.index("8 NICs a host") < text.index("  step ")
    assert answer.to_json()["assumed_of_cluster"]
