"""What the recorder counts."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="previews run the script with torch (pip install syncline[torch])")


@pytest.mark.parametrize(
    ("name", "products"),
    [("_scaled_dot_product_flash_attention", 2), ("_scaled_dot_product_flash_attention_backward", 5)],
)
def test_grouped_queries_count_as_every_head_that_reads(name: str, products: int) -> None:
    from torch.utils.flop_counter import flop_registry

    from syncline.previewing.capture.recorder import every_head

    queries, keys = torch.empty(2, 32, 128, 64, device="meta"), torch.empty(2, 8, 128, 64, device="meta")
    func = getattr(torch.ops.aten, name).default
    args = (*([queries] if "backward" in name else []), queries, keys, keys)
    counted = flop_registry[func.overloadpacket](*every_head(func, args), out_val=queries)
    assert counted == products * 2 * 2 * 32 * 128 * 128 * 64
