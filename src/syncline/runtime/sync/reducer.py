"""DDP's reducer made anew: torch lets a reducer have one communication hook, once, and never takes it back.

A new reducer averages in C++, as a model that was never synchronised does, and takes a hook again. It is made between
two steps, on every rank at the same one; gradients that are there stay where they are.
"""

from __future__ import annotations

from typing import Any, cast

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from syncline.errors import SynchronizationError


def check_free(model: DistributedDataParallel) -> None:
    """Refuse a model whose gradients somebody else already averages."""
    hooks = getattr(model, "_comm_hooks", [])
    if hooks:
        hook, state = hooks[0]
        if hasattr(state, "settings"):
            raise SynchronizationError(
                "this model is synchronised already.", hint="Call close() on its handle before you make another."
            )
        name = getattr(hook, "__qualname__", str(hook))
        raise SynchronizationError(
            f'this DDP model has the communication hook "{name}" already.',
            hint="Leave it out (mixed_precision= of DDP registers one too; torch.autocast does not).",
        )


def renew(model: DistributedDataParallel) -> None:
    """Make the reducer anew, without a hook: gradients are averaged as plain DDP averages them."""
    owner: Any = model
    parameters, expect_sparse = owner._build_params_for_reducer()
    names = owner._build_debug_param_to_name_mapping(parameters)
    owner._ddp_init_helper(parameters, expect_sparse, names, owner.static_graph)
    if owner.static_graph:
        owner.reducer._set_static_graph()
        owner.logger._set_static_graph()
        owner._static_graph_delay_allreduce_enqueued = False
    owner._has_rebuilt_buckets = False
    owner._comm_hooks.clear()


def fit_buckets(model: DistributedDataParallel, bucket_bytes: int) -> None:
    """Make buckets of this size where the user has not set a size and DDP would make larger ones.

    A bucket is sent when its last gradient is there: while a large one fills, the network is idle, and the last one is
    whole when the backward pass is over. DDP's default suits collectives, each of which costs; here pieces are sent.
    """
    owner, torch_distributed = cast("Any", model), cast("Any", dist)
    if bucket_bytes < torch_distributed._DEFAULT_FIRST_BUCKET_BYTES:  # compilers want the first to be the smallest
        return
    held = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    if getattr(owner, "bucket_bytes_cap_default", False) and bucket_bytes < min(held, owner.bucket_bytes_cap):
        owner.bucket_bytes_cap = bucket_bytes
        renew(model)
