"""NVLink domains across hosts: NVL72 racks and larger, one crossbar per domain."""

from __future__ import annotations

import numpy as np

from syncline.errors import FabricError
from syncline.fabric.draft import Draft, HostBlock
from syncline.fabric.fabric import DeviceKind, Tier
from syncline.fabric.host import spans_hosts, switch_latency_s
from syncline.fabric.topology.network import ceil_div, numbered


def join_domains(draft: Draft, block: HostBlock) -> None:
    """Join the GPUs of consecutive hosts into domains of the size the host model asks for."""
    model = block.template.model
    if not spans_hosts(model):
        return
    if model.scale_up_domain_gpus % model.num_gpus:
        raise FabricError(
            f"an NVLink domain of {model.scale_up_domain_gpus} GPUs cannot be made of hosts with {model.num_gpus}.",
            hint=f"Use a multiple of {model.num_gpus}.",
        )
    if model.scale_up_switch:
        largest = draft.catalog.scale_up_switch(model.scale_up_switch).max_domain_gpus
        if model.scale_up_domain_gpus > largest:
            raise FabricError(
                f"{model.scale_up_switch} joins at most {largest} GPUs, not {model.scale_up_domain_gpus}.",
                hint=f"Use `domain_gpus: {largest}` or fewer.",
            )
    gpu = draft.catalog.gpu(model.gpu)
    link = draft.catalog.scale_up(gpu.scale_up or "")
    hosts_per_domain = model.scale_up_domain_gpus // model.num_gpus
    num_domains = ceil_div(block.num_hosts, hosts_per_domain)
    domain = np.arange(block.num_hosts) // hosts_per_domain
    first = int(draft.facts.get("nvlink_domains", 0))
    crossbars = draft.add_switches(
        [f"{name}/nvswitch" for name in numbered("nvl", num_domains, first)],
        model.scale_up_switch or "NVSwitch",
        level=1,
        group=np.arange(first, first + num_domains),
        site=block.site,
        kind=DeviceKind.NVSWITCH,
    )
    draft.join(
        block.gpus.ravel(),
        np.repeat(crossbars[domain], model.num_gpus),
        medium=link.name,
        tier=Tier.SCALE_UP,
        rate_Bps=draft.catalog.scale_up_Bps(gpu),
        latency_s=link.latency_s + switch_latency_s(model, draft.catalog) / 2,
    )
    draft.facts["nvlink_domains"] = first + num_domains
    draft.facts["nvlink_domain_gpus"] = model.scale_up_domain_gpus
    draft.set_racks(block, first + domain, domains=True)
