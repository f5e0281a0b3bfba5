"""What a cluster file leaves open is told as it is built: a slow card is not given the rate of the network."""

from __future__ import annotations

import numpy as np
import pytest

from syncline.fabric import load
from syncline.fabric.assumed import assumed_of, assumed_of_network
from syncline.fabric.load import described, parse_cluster


@pytest.mark.parametrize(
    ("host", "rate", "advice"),
    [
        ({"gpu": "A10"}, "1 Gb/s a GPU", "slower than HDR"),
        ({"gpu": "A10", "nic": "ConnectX-7"}, "200 Gb/s a GPU", "`nics: 2`"),
        ({"gpu": "A100", "gpus": 8}, "200 Gb/s a GPU", "`nics: 1`"),
    ],
)
def test_the_rate_that_is_told_is_the_one_that_is_built(host: dict[str, object], rate: str, advice: str) -> None:
    data = {"hosts": 2, "host": host, "network": "fat-tree HDR"}
    told = assumed_of(parse_cluster(described(data)))[0]
    assert rate in told and advice in told
    fabric = load(data)
    ports = np.isin(fabric.links.src, fabric.nics) & np.isin(fabric.links.dst, fabric.switches)
    assert fabric.links.rate_Bps[ports].max() * 8e-9 == pytest.approx(float(rate.split()[0]))


@pytest.mark.parametrize("host", ["dgx-h100", {"gpu": "H100", "gpus": 8}, {"model": "dgx-h100", "nics": 4}])
@pytest.mark.parametrize("link", ["NDR", "HDR"])
def test_the_cards_of_a_host_are_told_once(host: object, link: str) -> None:
    spec = parse_cluster(described({"hosts": 2, "host": host, "network": f"leaf-spine {link}"}))
    told = [text for text in (*assumed_of(spec), *assumed_of_network(spec)) if " a host" in text]
    assert len(told) == 1
