"""Which hosts a run had: accelerator, power cap and network, read from what its row says of them."""

from __future__ import annotations

import re

from research.published import table
from research.training.network_text import NetworkReading, read_network
from research.training.rows import PublishedRow

from syncline.errors import CatalogError, DescriptionError
from syncline.fabric.catalog import HostModel
from syncline.validation.training_run import parts

#: What an accelerator entry may replace of the host it names.
_OVER = ("gpu", "num_gpus", "num_nics", "scale_up_domain_gpus")


def accelerator_of(row: PublishedRow) -> tuple[HostModel, str]:
    """Return the host that a row's accelerator comes in, and a remark where its rates are unverified."""
    text = row.text("gpu").replace("_", " ")
    for entry in table("accelerator-names.yaml"):
        if re.search(entry["text"], text, re.IGNORECASE):
            host = parts().host(entry["host"]).model_copy(update={k: entry[k] for k in _OVER if k in entry})
            remark = f"{host.gpu}: sustained rates are assumed, unverified" if entry.get("unverified") else ""
            return host, remark
    try:
        gpu = parts().gpu(text).name
    except CatalogError:
        raise DescriptionError(
            f'accelerator "{text}" is not in the catalogue, or has no published matrix rate'
        ) from None
    return parts().host("h100-pcie-4").model_copy(update={"gpu": gpu, "name": "pcie-server"}), ""


def host_of(row: PublishedRow) -> HostModel:
    """Return the host of the catalogue that a row's GPU comes in."""
    return accelerator_of(row)[0]


def power_of(row: PublishedRow) -> float | None:
    """Return a power cap that the row states: "H100-96GB-500W"."""
    found = re.search(r"(\d{3,4})\s*W\b", row.text("gpu")) or re.search(r"(\d{3,4})\s*W cap", row.everything)
    return float(found.group(1)) if found and float(found.group(1)) > 0 else None


def network_of(row: PublishedRow, model: HostModel) -> NetworkReading:
    """Return what a row says of the network: its interconnect, else rates in its source and notes."""
    try:
        port_gbps = parts().link(model.link).rate_Bps * 8 / 1e9 if model.link else None
    except CatalogError:
        port_gbps = None
    said = read_network(row.text("interconnect"), model, port_gbps)
    if said.gpu_Bps is not None or said.question:
        return said
    elsewhere = read_network(f"{row.text('source')}; {row.text('notes')}", model, port_gbps)
    return elsewhere if elsewhere.gpu_Bps is not None else said
