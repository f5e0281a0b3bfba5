"""A search on a real local Ray finds what a search here finds."""

from __future__ import annotations

import sys

import pytest

from syncline.errors import PlanError
from syncline.planning.rayrun import on_ray
from syncline.planning.search import search


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(PlanError, match="Ray is not installed") as caught:
        on_ray()
    assert caught.value.hint == 'Install the extra: pip install "syncline[ray]".'


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_real_local_ray_finds_the_same(asked) -> None:
    ray = pytest.importorskip("ray", reason='Ray is an extra: pip install "syncline[ray]"')
    question, _ = asked(model="llama3-8b", total=64, sequence=4096)
    here = search(question, 16, workers=1)
    try:
        there = search(question, 16, spread=on_ray(num_cpus=1))
    finally:
        ray.shutdown()
    assert there.best == here.best
    assert (there.num_considered, there.num_fitting) == (here.num_considered, here.num_fitting)
