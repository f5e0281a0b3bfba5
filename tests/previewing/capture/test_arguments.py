"""Arguments of captured kernels made anew: indices that an operator takes."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="kernels are torch's")

from syncline.previewing.capture.arguments import Arguments  # noqa: E402


def tensor(dtype: str, *shape: int) -> dict[str, object]:
    return {"shape": list(shape), "stride": [1] if len(shape) == 1 else [shape[1], 1], "dtype": dtype, "on": "cpu"}


def test_bags_of_rows_are_alike_and_inside_their_table() -> None:
    table, rows, bags = tensor("torch.float32", 50, 8), tensor("torch.int64", 12), tensor("torch.int64", 4)
    spec = {"op": "aten._embedding_bag.default", "args": [table, rows, bags, False, 0, False, None], "kwargs": {}}
    made = Arguments(spec)
    assert made.args[2].tolist() == [0, 3, 6, 9] and int(made.args[1].max()) < 50
    out = made.call()()
    assert isinstance(out, tuple) and out[0].shape == (4, 8)


def test_the_gradient_of_bags_knows_whose_each_row_is() -> None:
    grad, rows, bags = tensor("torch.float32", 4, 8), tensor("torch.int64", 12), tensor("torch.int64", 4)
    given = [grad, rows, bags, rows, bags, tensor("torch.int64", 0), 50, False, 0, False, None]
    made = Arguments({"op": "aten._embedding_bag_backward.default", "args": given, "kwargs": {}})
    assert made.args[3].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3] and made.args[4].tolist() == [3] * 4
    out = made.call()()
    assert isinstance(out, torch.Tensor) and out.shape == (50, 8)


def test_rows_of_a_grouped_product_are_shared_out() -> None:
    rows, experts, wide = 24, 4, 16
    plain, ends = tensor("torch.bfloat16", rows, wide), tensor("torch.int32", experts)
    weights = {**plain, "shape": [experts, wide, 8], "stride": [wide * 8, 8, 1]}
    across = {**plain, "shape": [wide, rows], "stride": [1, wide]}
    for left, right in ((plain, weights), (across, plain)):
        spec = {"op": "aten._grouped_mm.default", "args": [left, right, ends], "kwargs": {}}
        assert Arguments(spec).args[2].tolist() == [6, 12, 18, 24]
