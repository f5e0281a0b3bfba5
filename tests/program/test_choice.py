"""The decision on numbers made up: which codec at which rate, in which class, and no flapping."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.codec.names import PLAIN
from syncline.program.choice import CLASSES, LOCAL_WORTH, Choice, ChoiceBasis, CodecPrice, Local, decide, periodic
from syncline.program.overlap import Work

WORK = Work(0.2, (0.0, 0.05, 0.05, 0.05), (6_000_000,) * 4, 0.05)
PRICES = tuple(
    CodecPrice(name, 1.0e-9, 0.4e-9, 1.4e-9, 0.011) if name.startswith("powersgd") else CodecPrice(name, cost, cost)
    for name, cost in {
        "fp32": 5e-10, "bf16": 5e-10, "int8": 6e-10, "int4": 9e-10, "sign": 8e-10, "powersgd:rank=4": 0,
        "topk:keep=0.01+int8": 1.5e-9,
    }.items()
)  # fmt: skip


def at(rate_bps: float, **changes: object) -> ChoiceBasis:
    plain = ChoiceBasis(4, rate_bps / 8, 1e-4, 8.0, 5e-10, 2e-5, 3e-10, WORK, PRICES)
    return replace(plain, **changes)  # type: ignore[arg-type]


def test_on_a_fast_network_nothing_is_gained_by_codecs() -> None:
    for accuracy in CLASSES:
        assert set(decide(at(100e9), accuracy).codecs) == {PLAIN}


def test_at_1_gigabit_int8_is_taken() -> None:
    choice = decide(at(1e9), "safe")
    assert set(choice.codecs) <= {"int8", "bf16"}
    assert "int8" in choice.codecs
    assert choice.predicted_s < 0.7 * choice.table[PLAIN]
    assert "plain DDP" in choice.why
    assert "1 Gb/s" in choice.why
    assert "\n" not in choice.why


def test_at_50_megabit_only_what_is_allowed_is_taken() -> None:
    safe, wild = decide(at(5e7), "safe"), decide(at(5e7), "aggressive")
    assert set(safe.codecs) == {"int8"}
    assert not set(wild.codecs) & set(CLASSES["safe"])
    assert wild.predicted_s < 0.5 * safe.predicted_s


@settings(max_examples=25, deadline=None)
@given(st.floats(1e6, 1e12), st.integers(2, 64), st.floats(0.5, 128))
def test_exact_never_loses_anything_and_nothing_is_predicted_slower_than_plain(
    rate_bps: float, num_ranks: int, cores: float
) -> None:
    measured = at(rate_bps, num_ranks=num_ranks, num_cores=cores)
    exact = decide(measured, "exact", mixed=False)
    assert set(exact.codecs) <= {PLAIN, "fp32"}
    safe = decide(measured, "safe", mixed=False)
    assert safe.predicted_s <= 1.03 * safe.table[PLAIN]
    assert set(safe.codecs) <= set(CLASSES["safe"])


def test_ranks_with_the_same_numbers_decide_alike() -> None:
    for rate in (5e7, 3e8, 1e9, 25e9):
        again = ChoiceBasis.from_json(json.loads(json.dumps(at(rate).to_json())))
        assert decide(again, "aggressive") == decide(at(rate), "aggressive")


def test_what_is_in_use_stays_unless_another_is_clearly_better() -> None:
    changes, current = 0, decide(at(1e9), "safe").codecs
    for wobble in (1.05, 0.95, 1.1, 0.9, 1.0):
        after = decide(at(1e9 * wobble), "safe", current).codecs
        changes, current = changes + (after != current), after
    assert changes == 0
    assert decide(at(100e6), "aggressive", (PLAIN,) * 4).codecs != (PLAIN,) * 4


def test_plain_is_left_only_for_what_is_clearly_faster() -> None:
    rates = [2e9 * 1.15**step for step in range(30)]
    for choice in (decide(at(rate), "safe", mixed=False) for rate in rates):
        assert (choice.codecs[0] == PLAIN) == (choice.table[PLAIN] <= 1.05 * min(choice.table.values()))


def test_methods_that_talk_less_often_are_priced() -> None:
    slow = at(5e7)
    wire_s = 1.5 * 24e6 / 6.25e6
    assert slow.periodic_s("fp32", 8) == pytest.approx(4 * wire_s / 8)
    assert slow.periodic_s("int8", 50) == pytest.approx(WORK.total_s), "behind the computation"
    crowded = replace(slow, num_cores=2.0)
    assert 2 * WORK.total_s < crowded.periodic_s("int8", 50) < 2.1 * WORK.total_s, "its own work on top"
    assert list(periodic(slow)) == ["DiLoCo(every=50)"]
    assert periodic(slow)["DiLoCo(every=50)"] < decide(slow, "aggressive").predicted_s


def test_steps_alone_are_computation_and_one_average_every_so_many() -> None:
    slow = at(1e6)
    alone, wire_s = slow.predict(["local-sgd:every=8+int8"]), 1.5 * 24e6 / 1.25e5
    assert alone == pytest.approx(WORK.total_s + wire_s / 8, rel=0.05)
    crowded = replace(slow, num_cores=2.0)
    assert crowded.predict(["local-sgd:every=8+int4"]) > 2 * WORK.total_s


def test_steps_alone_are_taken_on_a_very_slow_link_in_the_class_that_allows_them() -> None:
    choice = decide(at(1e6), "aggressive")
    (name,) = set(choice.codecs)
    assert name == "local-sgd:every=8+topk:keep=0.01+int8"
    assert choice.predicted_s == choice.table[name]
    assert choice.predicted_s * LOCAL_WORTH < at(1e6).predict(choice.together)
    assert choice.why.startswith(f"{name}: at 1 Mb/s, 4 ranks a step should take")
    assert f", {choice.together[0]} " in choice.why, "the best with which ranks talk at every step"
    assert [Local.named(one) is not None for one in choice.table] == [False] * 8 + [True] * 3
    for other in (decide(at(1e6), "safe"), decide(at(1e6), "aggressive", alone=False), decide(at(1e9), "aggressive")):
        assert other.codecs == other.together
        assert Local.named(other.codecs[0]) is None


def test_fewer_steps_alone_are_taken_where_they_are_about_as_fast_and_what_is_in_use_stays() -> None:
    far = at(1e9, latency_s=0.1)
    choice = decide(far, "aggressive")
    assert choice.codecs == ("local-sgd:every=8+int4",) * 4
    held = ("local-sgd:every=8+int8",) * 4
    assert decide(far, "aggressive", held).codecs == held
    assert decide(at(1e9), "aggressive", held).codecs == decide(at(1e9), "aggressive").codecs


def test_names_of_steps_alone() -> None:
    plan = Local(8, "topk:keep=0.01+int8")
    assert plan.name == "local-sgd:every=8+topk:keep=0.01+int8"
    assert Local.named(plan.name) == plan
    for name in ("int8", PLAIN, "topk:keep=0.01+int8", "local-sgd:every=0+int8", "local-sgd"):
        assert Local.named(name) is None


def test_a_slow_codec_is_not_taken_for_its_few_bytes() -> None:
    dear = tuple(replace(price, encode_s=1e-6, decode_s=1e-6) for price in PRICES)
    assert set(decide(at(1e9, prices=dear), "aggressive").codecs) == {PLAIN}


def test_a_mixture_is_taken_only_where_it_is_clearly_faster() -> None:
    for rate in (2e8, 1e9, 4e9):
        mixed, one = decide(at(rate), "safe"), decide(at(rate), "safe", mixed=False)
        assert mixed.predicted_s <= one.predicted_s
        if mixed.codecs != one.codecs:
            assert mixed.predicted_s * 1.03 < one.predicted_s


@pytest.mark.parametrize(("codecs", "name"), [(("int8",) * 3, "int8"), ((PLAIN, "int8"), "1 x plain and 1 x int8")])
def test_a_choice_has_a_name(codecs: tuple[str, ...], name: str) -> None:
    assert Choice(codecs, 0.0, {}, "").name == name
