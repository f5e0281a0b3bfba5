"""Which hosts a run had: accelerator, power cap and network, read from what its row says of them."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from syncline.errors import CatalogError, DescriptionError
from syncline.fabric.catalog import Catalog, HostModel, load_catalog
from syncline.sim.training.rows import Row

_LINKS = {"NDR": 400.0, "HDR100": 100.0, "HDR": 200.0, "EDR": 100.0, "FDR": 56.0, "XDR": 800.0, "OMNI-PATH": 100.0,
          "OMNIPATH": 100.0, "OPA": 100.0, "SLINGSHOT-11": 200.0, "SLINGSHOT 11": 200.0, "SLINGSHOT-10": 100.0,
          "SLINGSHOT": 200.0}  # fmt: skip
_GB = r"(\d+(?:\.\d+)?)\s*(?:Gb(?:it|ps)?(?:/s(?:ec)?)?|GbE|Gbits?/s)"
#: What an accelerator entry may replace of the host it names.
_OVER = ("gpu", "num_gpus", "num_nics", "scale_up_domain_gpus")


@cache
def _document() -> dict[str, Any]:
    text = (files("syncline.sim") / "data" / "training-parts.yaml").read_text(encoding="utf-8")
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


@cache
def parts() -> Catalog:
    """Return the catalogue with the accelerators that only published runs need."""
    return load_catalog().with_parts({kind: _document()[kind] for kind in ("scale_up", "gpu")})


def accelerator_of(row: Row) -> tuple[HostModel, str]:
    """Return the host that a row's accelerator comes in, and a remark where its rates are unverified."""
    text = row.text("gpu").replace("_", " ")
    for entry in _document()["accelerators"]:
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


def host_of(row: Row) -> HostModel:
    """Return the host of the catalogue that a row's GPU comes in."""
    return accelerator_of(row)[0]


def power_of(row: Row) -> float | None:
    """Return a power cap that the row states: "H100-96GB-500W"."""
    found = re.search(r"(\d{3,4})\s*W\b", row.text("gpu")) or re.search(r"(\d{3,4})\s*W cap", row.everything)
    return float(found.group(1)) if found and float(found.group(1)) > 0 else None


def network_of(row: Row, model: HostModel) -> float | None:
    """Return the network share of one GPU in bytes per second that a row's text states, or None.

    "8x HDR 200Gb/s" and "1600 Gbps node-node" speak of a host, "400 Gb/s per GPU" of a GPU; a name such as NDR alone
    is the rate of each of the host's usual ports. The largest that is named is the compute network.
    """
    text = f"{row.text('interconnect')}; {row.text('source')}; {row.text('notes')}"
    of_one = rf"{_GB}(?:\s*\([^)]*\))?\s*(?:per|/|a)\s*(?:GPU|device|chip)"
    per_gpu = [float(x) for x in re.findall(of_one, text, re.IGNORECASE)]
    if per_gpu and max(per_gpu) > 0:
        return max(per_gpu) * 1e9 / 8
    rate = max(_host_rates(text, row.text("interconnect"), model), default=0.0)
    return rate * 1e9 / 8 / model.num_gpus if rate > 0 else None


def _host_rates(text: str, interconnect: str, model: HostModel) -> list[float]:
    """Return the rates of a whole host in Gb/s that a text names, most explicit first."""
    hosts = [float(n) * float(g) for n, g in re.findall(r"(\d+)\s*[x×]\s*[^,;:]*?(\d+)\s*Gb", text, re.IGNORECASE)]
    of_host = rf"{_GB}\s*(?:node|host|inter|per (?:node|host|server))"
    hosts += [float(x) for x in re.findall(of_host, text, re.IGNORECASE)]
    if hosts:
        return hosts
    named = [rate for name, rate in _LINKS.items() if re.search(rf"(?<![A-Z]){name}(?![A-Z0-9])", text.upper())]
    if named:
        counts = re.findall(r"(\d+)\s*[x×]\s*(?:NDR|HDR|EDR|Omni|OPA|Slingshot)", text, re.IGNORECASE)
        return [max(named) * (int(counts[0]) if counts else model.num_ports)]
    return [float(x) for x in re.findall(_GB, interconnect, re.IGNORECASE)[:1]]
