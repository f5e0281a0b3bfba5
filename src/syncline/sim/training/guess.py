"""What the text of a row says: model shape, GPU, network, precision, recomputation, software and its year."""

from __future__ import annotations

import re

from syncline.errors import CatalogError, DescriptionError
from syncline.fabric.catalog import HostModel, load_catalog
from syncline.sim.training.rows import Row
from syncline.workload.shape import Shape
from syncline.workload.zoo import shapes

_PARTS = (
    (r"GB300", "gb300-nvl72"), (r"GB200", "gb200-nvl72"), (r"B300", "dgx-b300"), (r"B200", "dgx-b200"), (r"GH200",
    "gh200-blade"),
    (r"H200", "dgx-h200"), (r"H800", "hgx-h800-8"), (r"H100.*96\s*GB", "grand-teton-h100"), (r"H100.*PCIe",
    "h100-pcie-4"),
    (r"H100", "dgx-h100"), (r"A100.*40\s*GB", "dgx-a100-320"), (r"A100", "dgx-a100"), (r"V100.*DGX-?2|DGX-?2.*V100",
    "dgx-2"),
    (r"V100", "dgx-1-v100"), (r"MI355", "mi355x-8"), (r"MI300", "mi300x-8"), (r"MI250", "mi250x-blade"),
)  # fmt: skip
_FIRST_YEAR = {"Volta": 2019, "Ampere": 2021, "Hopper": 2023, "Blackwell": 2025, "Blackwell Ultra": 2025, "CDNA2": 2022,
               "CDNA3": 2024, "CDNA4": 2025}  # fmt: skip
_GATED = re.compile(
    r"llama|qwen|mistral|mixtral|deepseek|gemma|\byi\b|nemotron-?h|palm|gpt.?oss|grok|olmo|internlm", re.IGNORECASE
)
_MLPERF = {"0.6": 2019, "0.7": 2020, "1.0": 2021, "1.1": 2021, "2.0": 2022, "2.1": 2022, "3.0": 2023, "3.1": 2023,
"4.0": 2024, "4.1": 2024,
           "5.0": 2025, "5.1": 2025}  # fmt: skip
_MODEL_YEARS = (
    (r"qwen-?_?3|gpt.?oss|kimi|glm|llama-?_?4", 2025), (r"llama-?_?3|deepseek|mixtral|qwen-?_?2|nemotron|gemma", 2024),
    (r"llama|mpt|mistral|falcon", 2023), (r"bloom|opt-|palm|chinchilla", 2022),
)  # fmt: skip
_LINKS = {"NDR": 400.0, "HDR100": 100.0, "HDR": 200.0, "EDR": 100.0, "FDR": 56.0, "XDR": 800.0, "OMNI-PATH": 100.0,
"OMNIPATH": 100.0,
          "SLINGSHOT-11": 200.0, "SLINGSHOT-10": 100.0}  # fmt: skip


def host_of(row: Row) -> HostModel:
    """Return the host of the catalogue that a row's GPU comes in."""
    text = f"{row.text('gpu')}"
    catalog = load_catalog()
    for pattern, host in _PARTS:
        if re.search(pattern, text, re.IGNORECASE):
            found = catalog.host(host)
            if "96" in text and host == "grand-teton-h100":
                return found.model_copy(update={"gpu": "H100-SXM5-96GB"})
            return found
    try:
        gpu = catalog.gpu(text).name
    except CatalogError:
        raise DescriptionError(
            f'accelerator "{text}" is not in the catalogue, or has no published matrix rate'
        ) from None
    if catalog.gpu(gpu).vendor == "google":
        raise DescriptionError(f"{gpu}: no sustained matrix rate is known for TPUs")
    return catalog.host("h100-pcie-4").model_copy(update={"gpu": gpu, "name": "pcie-server"})


def power_of(row: Row) -> float | None:
    """Return a power cap that the row states: "H100-96GB-500W"."""
    found = re.search(r"(\d{3,4})\s*W\b", row.text("gpu")) or re.search(r"(\d{3,4})\s*W cap", row.everything)
    return float(found.group(1)) if found else None


def network_of(row: Row, model: HostModel) -> float | None:
    """Return the network share of one GPU in bytes per second that a row's text states, or None.

    "8x HDR 200Gb/s" and "1600 Gbps node-node" speak of a host, "400 Gb/s per GPU" of a GPU; a name such as NDR alone
    is the rate of each of the host's usual ports. The largest that is named is the compute network.
    """
    text = f"{row.text('interconnect')}; {row.text('source')}; {row.text('notes')}"
    per_gpu = [
        float(x) for x in re.findall(r"(\d+(?:\.\d+)?)\s*Gb(?:it|ps)?(?:/s(?:ec)?)?\s*per GPU", text, re.IGNORECASE)
    ]
    if per_gpu:
        return max(per_gpu) * 1e9 / 8
    hosts = [float(n) * float(g) for n, g in re.findall(r"(\d+)\s*x\s*[^,;:]*?(\d+)\s*Gb", text, re.IGNORECASE)]
    hosts += [
        float(x)
        for x in re.findall(r"(\d+(?:\.\d+)?)\s*Gb(?:it|ps)?(?:/s)?\s*(?:node|host|inter)", text, re.IGNORECASE)
    ]
    if not hosts:
        names = [rate for name, rate in _LINKS.items() if re.search(rf"(?<![A-Z]){name}(?![A-Z0-9])", text.upper())]
        counts = re.findall(r"(\d+)\s*x\s*(?:NDR|HDR|EDR|Omni|Slingshot)", text, re.IGNORECASE)
        if names:
            hosts = [max(names) * (int(counts[0]) if counts else model.num_ports)]
    if not hosts:
        plain = re.findall(r"(\d+)\s*(?:Gbps|Gb/s|Gbit/s|GbE)", row.text("interconnect"), re.IGNORECASE)
        hosts = [float(plain[0])] if plain else []
    return max(hosts) * 1e9 / 8 / model.num_gpus if hosts else None


def precision_of(row: Row) -> str | None:
    """Return the precision of the matrix products, or None where the row does not say."""
    text = row.text("precision").lower()
    for name in ("fp4", "fp8", "tf32", "bf16", "bfloat16", "fp16", "float16", "fp32"):
        if name in text:
            return {"bfloat16": "bf16", "float16": "fp16"}.get(name, name)
    return "fp8" if "mxfp8" in text else None


def recompute_of(row: Row, torch_like: bool) -> str | None:
    """Return what is repeated, or None where the row does not say."""
    text = row.text("recompute").lower()
    if not text:
        return None
    if text.startswith(("none", "no", "false", "off")):
        return "none"
    if "full" in text or text in ("true", "yes", "on") or "uniform" in text or "block" in text:
        return "full"
    if "selective" in text or "partial" in text:
        return "selective-op" if torch_like else "selective"
    return None


def year_of(row: Row) -> int:
    """Return the year of the software: of the paper, the container or the benchmark round, or else of the part."""
    text = f"{row.text('source')} {row.text('notes')}"
    if found := re.search(r"arxiv[ :]*(\d\d)(\d\d)\.\d{4,5}", text, re.IGNORECASE):
        return 2000 + int(found.group(1))
    if found := re.search(r"MLPerf.*?v(\d\.\d)", text):
        return _MLPERF.get(found.group(1), 2025)
    if found := re.search(r"\b(2[0-6])\.(0[1-9]|1[0-2])\b", text):
        return 2000 + int(found.group(1))
    if found := re.search(r"(20[12]\d)(?:0[1-9]|1[0-2])?(?!\d)", text):
        return int(found.group(1))
    gpu = load_catalog().gpu(host_of(row).gpu)
    first = _FIRST_YEAR.get(gpu.architecture, 2024)
    if "fsdp" in text.lower() or "fsdp" in row.text("zero_or_fsdp").lower():
        first = max(first, 2023)  # FSDP became usual with PyTorch 2.0
    return max(first, model_year(row.text("model")))


def model_year(name: str) -> int:
    """Return the year from which a model can have been trained at all."""
    return next((year for pattern, year in _MODEL_YEARS if re.search(pattern, name, re.IGNORECASE)), 0)


def framework_of(row: Row) -> str:
    """Return the framework that a row's text points to."""
    text = row.everything.lower()
    if any(
        word in text
        for word in ("torchtitan", "llm-foundry", "fsdp", "mosaic", "pytorch/", "litgpt", "lightning", "hugging")
    ):
        return "megatron" if "megatron" in text else "pytorch"
    return "deepspeed" if "deepspeed" in text and "megatron-lm" not in text else "megatron"


def shape_of(row: Row) -> Shape:
    """Return the model of a row: one that ships where name and columns agree, or else from its columns."""
    layers, hidden, heads = (row.whole(c) for c in ("layers", "hidden", "heads"))
    known = _known_shape(row.text("model"))
    if known and (layers is None or (known.layers, known.hidden) == (layers, hidden)):
        return known
    if not layers or not hidden or not heads:
        raise DescriptionError(
            f'the shape of "{row.text("model")}" is not published (layers, hidden and heads are needed)'
        )
    return _shape_from_columns(row, layers, hidden, heads)


def _known_shape(name: str) -> Shape | None:
    text = re.sub(r"[^a-z0-9.]+", "", name.lower())
    pairs = sorted(((re.sub(r"[^a-z0-9.]+", "", n.lower()), s) for n, s in shapes().items()), key=lambda p: -len(p[0]))
    text = re.sub(r"llama3\.[123](?=\d*b)", "llama3", text.replace("llama3.1", "llama3").replace("llama3.2", "llama3"))
    return next((shape for key, shape in pairs if text.startswith(key)), None)


def _shape_from_columns(row: Row, layers: int, hidden: int, heads: int) -> Shape:
    """Return a shape from numbers: a GPT block, or a gated one whose width is set by the parameter count."""
    vocab = row.whole("vocab") or 51_200
    params = row.number("params_b")
    name = row.text("model")
    common = {"name": name, "layers": layers, "hidden": hidden, "heads": heads, "vocab": vocab, "source": "row"}
    if not _GATED.search(name):
        positions = row.whole("seq") or 0
        mpt = name.upper().startswith("MPT")
        return Shape.model_validate(
            common | {"tied": True, "positions": positions, "biases": not mpt, "norm_biases": not mpt}
        )
    width = 8 * hidden // 3
    if params:
        rest = params * 1e9 - 2 * vocab * hidden - layers * 4 * hidden**2
        width = max(int(rest / layers / (3 * hidden)), hidden)
    return Shape.model_validate(common | {"gated": True, "ffn": width})
