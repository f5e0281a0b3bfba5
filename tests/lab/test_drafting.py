"""From a fabric to a blueprint: boxes, addresses, scale. Builds nothing."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.lab.conftest import example

from syncline.errors import LabError
from syncline.fabric import load
from syncline.lab import Blueprint, Profile, draft
from syncline.lab.drafting import nice_scale
from syncline.lab.routes import tables


def kinds(blueprint: Blueprint) -> dict[str, int]:
    return {kind: sum(box.kind == kind for box in blueprint.boxes) for kind in ("host", "bridge", "router")}


def test_one_switch_bridges_and_a_loop_routes() -> None:
    assert kinds(draft(example("flat"))) == {"host": 4, "bridge": 1, "router": 0}
    assert kinds(draft(example("leaf-spine"))) == {"host": 8, "bridge": 0, "router": 4}
    assert kinds(draft(example("two-sites"))) == {"host": 8, "bridge": 4, "router": 0}
    assert kinds(draft(example("flat"), profile=Profile(switching="route"))) == {"host": 4, "bridge": 0, "router": 1}


def test_bridges_may_not_form_a_loop() -> None:
    with pytest.raises(LabError, match="form a loop, and bridges cannot"):
        draft(example("leaf-spine"), profile=Profile(switching="bridge"))


def test_the_scale_keeps_all_hosts_below_two_gigabits() -> None:
    assert draft(example("flat")).scale == 0.5
    assert draft(example("leaf-spine")).scale == 0.2
    superpod = draft(load("dgx-h100-superpod"), hosts=4)
    assert superpod.scale == pytest.approx(1e-4)
    assert superpod.cables[0].rate_Bps * 8 == pytest.approx(40e6)
    assert sum(c.rate_Bps for c in superpod.cables) <= 250e6


@pytest.mark.parametrize(
    ("most", "scale"), [(3.0, 1.0), (1.0, 1.0), (0.99, 0.5), (0.4, 0.2), (0.19, 0.1), (0.05, 0.05)]
)
def test_scales_are_round(most: float, scale: float) -> None:
    assert nice_scale(most) == pytest.approx(scale)


def test_addresses_name_rail_and_host() -> None:
    blueprint = draft(example("two-rails"))
    assert blueprint.addresses(2) == {"eth0": "10.1.0.10", "eth1": "10.2.0.10"}
    routed = draft(example("leaf-spine"))
    assert routed.addresses(2) == {"eth0": "10.1.0.10"}
    everywhere = [end.address for cable in routed.cables for end in (cable.a, cable.b)]
    assert len(set(everywhere)) == len(everywhere)


def test_a_part_of_a_large_cluster() -> None:
    part = draft(load("dgx-h100-superpod"), hosts=4)
    assert kinds(part) == {"host": 4, "bridge": 8, "router": 0}  # one unit: the spines are on no path
    sites = draft(load("two-sites-wan"), hosts=4)
    assert [box.site for box in sites.boxes if box.kind == "host"] == [0, 0, 1, 1]
    assert {c.delay_s for c in sites.cables} == {0.0, 0.006}
    named = draft(load("h100-64-rail"), hosts=["host-03", "host-40"])
    assert [named.boxes[h].name for h in named.hosts] == ["host-03", "host-40"]


def test_a_blueprint_survives_json() -> None:
    blueprint = draft(example("two-sites"), profile=Profile(mtu_bytes=1500, burst_bytes=3200))
    assert Blueprint.from_json(json.loads(json.dumps(blueprint.to_json()))) == blueprint


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: draft(load("h100-131k-3tier")), "one machine cannot hold such a lab"),
        (lambda: draft(load("tpu-v4-pod")), "pass traffic on for each other"),
        (lambda: draft(example("flat"), hosts=5), "has 4 hosts, not 5"),
        (lambda: draft(example("flat"), hosts=["host-09"]), 'has no host "host-09"'),
        (lambda: draft(example("flat"), scale=-1), "the scale must be above 0, got -1"),
        (lambda: draft(example("flat"), scale=1e-6), "too little to measure"),
        (lambda: Profile(mtu_bytes=10), "an MTU of 10 bytes is not possible"),
        (lambda: Profile(burst_bytes=5000), "less than one frame of 9014"),
        (lambda: Profile(shaper="fq"), 'shaper "fq" is unknown'),  # type: ignore[arg-type]
        (lambda: Profile(hash_policy=7), "hash policy 7 is unknown"),
    ],
)
def test_what_cannot_be_is_refused(call: object, text: str) -> None:
    assert callable(call)
    with pytest.raises(LabError, match=text) as caught:
        call()
    assert caught.value.hint


def test_routes_of_a_dead_rail_move_to_the_other() -> None:
    blueprint = draft(example("two-rails"))
    assert all(not table for table in tables(blueprint))  # every rail's own route will do
    cut = next(i for i, c in enumerate(blueprint.cables) if c.a.box == 0 and c.a.interface == "eth0")
    found = tables(blueprint, frozenset({cut}))
    assert found[1]["10.1.0.2"][0] == replace(found[1]["10.1.0.2"][0], interface="eth1", gateway="10.2.0.2")
    assert {hops[0].interface for hops in found[0].values()} == {"eth1"}
    assert found[2].keys() == {"10.1.0.2"}


def test_routers_use_every_shortest_way_and_only_those_that_are_up() -> None:
    blueprint = draft(example("leaf-spine"))
    leaf = blueprint.box("leaf-00")
    far = blueprint.addresses(blueprint.host("host-07"))["eth0"]
    assert len(tables(blueprint)[leaf][far]) == 2
    spine = blueprint.box("spine-00")
    cut = next(i for i, c in enumerate(blueprint.cables) if {c.a.box, c.b.box} == {leaf, spine})
    assert len(tables(blueprint, frozenset({cut}))[leaf][far]) == 1
