"""What is made again from its shape is what torch's fake tensors work out."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="previews run the script with torch (pip install syncline[torch])")
PROBE = """
import json, torch
from torch._subclasses.fake_tensor import FakeTensorMode
from syncline.previewing.capture import quick
aten = torch.ops.aten
CALLS = [
    lambda x: aten.mm(x, x.t()), lambda x: aten.native_layer_norm(x, [16], None, None, 1e-5),
    lambda x: aten.view(x, [16, 8]), lambda x: aten.slice(x, 0, 2, 6), lambda x: aten.t(x),
    lambda x: aten.add(x, 1), lambda x: aten.add(x, 1.5), lambda x: aten.add(x.int(), 1),
    lambda x: aten.add(x.int(), 1.5),
    lambda x: aten.split(x, 4), lambda x: aten.expand(x[:1], [8, 16]), lambda x: aten.clone(x.t()),
    lambda x: aten.native_dropout(x, 0.5, True), lambda x: aten.max(x, 1), lambda x: aten._unsafe_view(x, [128]),
    lambda x: aten.slice(aten.slice(x, 0, 1, 8), 0, 1, 3), lambda x: aten.add_(x, 1), lambda x: aten.sum(x, [0], True),
    lambda x: aten.mul.out(x, 2.0, out=x), lambda x: aten.copy_(x, x.t().reshape(8, 16)), lambda x: aten.zero_(x[:2]),
    lambda x: aten.add.out(x, 1.0, out=torch.empty(0)), lambda x: aten._foreach_add_([x, x], 1.0) or x,
    lambda x: aten.aminmax.out(x, min=torch.empty(()), max=torch.empty(())), lambda x: aten.resize_(x.clone(), [4, 4]),
]
def said(out, x):
    if isinstance(out, (list, tuple)):
        return [said(each, x) for each in out]
    same = out.untyped_storage()._cdata == x.untyped_storage()._cdata
    row = [list(out.shape), list(out.stride()), out.storage_offset(), str(out.dtype), out.untyped_storage().nbytes()]
    return [*row, same, out.requires_grad, str(out.device)]
def all_of():
    with FakeTensorMode():
        x = torch.empty(8, 16)
        return [[said(call(x), x) for call in CALLS] for _ in range(3)]
own = all_of()
quick.prepare()
made = all_of()
hits = sum(plan is not None for plan in quick._seen.values())
print(json.dumps([own == made, own[0] == own[2], made[0] == made[2], hits]))
"""


def test_the_same_shapes_strides_and_storages() -> None:
    ran = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    equal, steady, steady_made, hits = json.loads(ran.stdout)
    assert equal, "made again is worked out"
    assert steady, "torch gives the same each time"
    assert steady_made, "and so does what was kept"
    assert hits > 8, "most operators were kept"
