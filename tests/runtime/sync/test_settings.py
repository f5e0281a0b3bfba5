"""Settings, levels, residuals and agreement texts: what can be checked without ranks."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
import torch

from syncline.errors import CodecError, SynchronizationError
from syncline.program.pieces import piece_cuts
from syncline.runtime.alive.agreement import difference
from syncline.runtime.sync.bucket import Layout
from syncline.runtime.sync.residuals import Residuals
from syncline.runtime.sync.settings import Settings
from syncline.runtime.sync.start import synchronize
from syncline.runtime.wire.levels import members, resolve


def test_wrong_choices_are_one_clear_error() -> None:
    with pytest.raises(SynchronizationError, match=r'nan="ignore" is unknown.\n  Known: raise, skip'):
        Settings(nan="ignore")
    with pytest.raises(SynchronizationError, match=r'there is no option "nam"\.\n  Did you mean "nan"\?'):
        Settings.given({"nam": "skip"})
    with pytest.raises(CodecError, match='there is no codec "int9"'):
        Settings(codec="int9")
    with pytest.raises(SynchronizationError, match=r"torch.distributed is not initialised"):
        synchronize(torch.nn.Linear(2, 2))


def test_feedback_is_kept_where_a_codec_needs_it() -> None:
    wanted = {"int8": False, "bf16": False, "sign": True, "int4": True, "powersgd": True}
    assert {codec: Settings().keeps_error(codec) for codec in wanted} == wanted


def test_codecs_of_a_bit_or_less_warm_up_unless_told_otherwise() -> None:
    wanted = {"int8": 0, "int4": 0, "sign": 100, "powersgd": 100}
    assert {codec: Settings(codec=codec).warmup for codec in wanted} == wanted
    assert Settings(codec="sign", warmup=0).warmup == 0
    assert Settings(codec="sign").warming_up(99) == "; warming up: sign from step 100"
    assert Settings(codec="sign").warming_up(100) == ""
    with pytest.raises(SynchronizationError, match="warmup=-2 must be a whole number from 0"):
        Settings(warmup=-2)


def test_levels_by_numbers_and_by_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve(None, 8) == resolve((1,), 8) == ()
    assert resolve((4, 2), 16) == (4, 2)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert resolve("host", 8) == (4,)
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    with pytest.raises(SynchronizationError, match='levels="host" needs LOCAL_WORLD_SIZE'):
        resolve("host", 8)
    with pytest.raises(SynchronizationError, match="10 ranks cannot be divided into groups of 4"):
        resolve((4,), 10)


def test_members_of_three_levels() -> None:
    assert members(5, 8, (2, 2)) == [[4, 5], [5, 7], [1, 5]]
    everyone = [tuple(members(rank, 8, (2, 2))[1]) for rank in range(8)]
    assert sorted(set(everyone)) == [(0, 2), (1, 3), (4, 6), (5, 7)]


def test_residuals_move_with_their_parameters() -> None:
    store = Residuals()
    first = store.flat(["a", "b"], [2, 3], torch.device("cpu"))
    first.copy_(torch.arange(5.0))
    second = store.flat(["b"], [3], torch.device("cpu"))
    assert second.tolist() == [2, 3, 4]
    store.load({"b": torch.tensor([7.0, 8, 9]), "c": torch.tensor([1.0])})
    assert second.tolist() == [7, 8, 9]
    assert store.flat(["c", "d"], [1, 1], torch.device("cpu")).tolist() == [1, 0]
    store.scale(0.5)
    assert second.tolist() == [3.5, 4, 4.5]
    with pytest.raises(SynchronizationError, match='the residual of parameter "b" has 2 elements and the parameter 3'):
        store.load({"b": torch.zeros(2)})


def test_a_layout_names_the_parameter_of_an_element() -> None:
    layout = Layout(("w", "b", "v"), ((2, 3), (3,), (4,)))
    assert [layout.parameter_at(k) for k in (0, 5, 6, 8, 9, 12)] == [0, 0, 1, 1, 2, 2]
    assert layout.fingerprint() != Layout(("w", "b", "v"), ((3, 2), (3,), (4,))).fingerprint()


def test_pieces_cover_a_bucket() -> None:
    cuts = piece_cuts(10_000_000, 8 << 20)
    assert cuts[0] == 0
    assert cuts[-1] == 10_000_000
    assert len(cuts) - 1 == 5
    assert piece_cuts(10, 8 << 20) == [0, 10]


def test_differences_between_ranks_are_named() -> None:
    text = str(difference(0, {"version": "0.1"}, 3, {"version": "0.2"}))
    assert text.startswith("ranks do not agree on version: rank 0 has '0.1' and rank 3 has '0.2'.")
    fewer = str(difference(0, {"parameters": [["a", [2]]]}, 1, {"parameters": []}))
    assert fewer.startswith("ranks do not hold the same parameters: rank 0 has 1 and rank 1 has 0.")
