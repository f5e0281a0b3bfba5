"""What ranks do in the tests of updates under the exchange: given optimizers, and buckets as large as pieces."""

from __future__ import annotations

from typing import Any

import torch
from tests.distributed.cases.training import (
    QUIET,
    batch,
    carried_by,
    distributed,
    gradients,
    network,
    same_everywhere,
    weights,
)
from torch.nn.parallel import DistributedDataParallel

import syncline.torch
from syncline.errors import SynchronizationError


def early(rank: int) -> dict[str, Any]:
    """An optimizer that is given updates under the exchange: the weights are those of one that is not, to the bit."""
    result: dict[str, Any] = {}
    for carrier, view in (("point-to-point", False), ("native", True), ("native", False)):
        found = []
        for is_early in (False, True):
            model = distributed(network(), gradient_as_bucket_view=view)
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
            given = {"optimizer": optimizer} if is_early else {}
            with carried_by(carrier):
                handle = syncline.torch.synchronize(model, codec="int4", **QUIET, **given)
            for step in range(8):
                with torch.enable_grad() if step % 2 else model.no_sync():
                    model(batch(rank, step)).square().sum().backward()
                if step % 2:
                    optimizer.step()
                    optimizer.zero_grad()
            updates = [len(step.updates) for step in handle.steps]
            handle.close()
            found.append((weights(model).clone(), updates, len(handle.steps[-1].ready)))
        (plain, none, _), (values, updates, buckets) = found
        result[f"{carrier}, {view}"] = {
            "equal": torch.equal(plain, values), "same": same_everywhere(values), "none": none, "updates": updates,
            "buckets": buckets,
        }  # fmt: skip
    refused = []
    ways: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {"nan": "skip"}), ({}, {"codec": "auto"}), ({"find_unused_parameters": True}, {})
    ]  # fmt: skip
    for chosen, more in ways:
        model = distributed(network(), **chosen)
        sgd = torch.optim.SGD(model.parameters(), lr=1e-2)
        options = {"codec": "int8", **QUIET, **more, "optimizer": sgd}
        try:
            handle = syncline.torch.synchronize(model, **options)
            refused.append(handle.why())
            handle.close()
        except SynchronizationError as error:
            refused.append(str(error))
    result["refused"] = refused
    return result


def fitted(rank: int) -> dict[str, Any]:
    """Buckets are as large as pieces where the user has not chosen; the model gets its own back."""
    result = {}
    for name, options in (("left out", {}), ("given", {"bucket_cap_mb": 25})):
        torch.manual_seed(0)
        inner = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(5)])
        model = DistributedDataParallel(inner, **options)
        before = model.bucket_bytes_cap
        handle = syncline.torch.synchronize(model, codec="int8", **{**QUIET, "piece_bytes": 1 << 20})
        for step in range(3):
            model.zero_grad()
            model(torch.full((2, 512), float(rank + step))).square().sum().backward()
        buckets, same = len(handle.steps[-1].ready), same_everywhere(gradients(model))
        handle.close()
        model.zero_grad()
        model(torch.ones(2, 512)).square().sum().backward()
        result[name] = {"buckets": buckets, "same": same, "back": model.bucket_bytes_cap == before}
    return result
