"""What the text of a row says of the run: precision, recomputation, software and its year, adapters."""

from __future__ import annotations

import re

from research.training.accelerator import host_of
from research.training.rows import PublishedRow

from syncline.validation.training_run import parts

_FIRST_YEAR = {"Pascal": 2018, "Volta": 2019, "Ampere": 2021, "Hopper": 2023, "Blackwell": 2025,
               "Blackwell Ultra": 2025, "CDNA2": 2022, "CDNA3": 2024, "CDNA4": 2025, "TPU v3": 2021, "TPU v4": 2022,
               "TPU v5e": 2023}  # fmt: skip
_MLPERF = {"0.6": 2019, "0.7": 2020, "1.0": 2021, "1.1": 2021, "2.0": 2022, "2.1": 2022, "3.0": 2023, "3.1": 2023,
           "4.0": 2024, "4.1": 2024, "5.0": 2025, "5.1": 2025}  # fmt: skip
_PRECISIONS = (
    ("fp4", r"fp4|mxfp4|float4"),
    ("fp8", r"fp8|float8|e4m3|e5m2|hfp8|transformer engine"),
    ("tf32", r"tf32"),
    ("bf16", r"bf16|bfloat|brain|nf4"),  # QLoRA keeps weights in nf4 and multiplies in bf16
    ("fp16", r"fp16|float16|half|f16"),
    ("fp32", r"fp32|float32|single|full precision"),
)
_RECIPES = (
    ("nvfp4", r"nvfp4"),
    ("tensorwise", r"tensor-?wise|fp8-cs|current|delayed"),
    ("rowwise", r"row-?wise|channel-?wise"),
    ("block", r"block"),
    ("mx", r"mxfp8|fp8-mx|mx-?fp8"),
)
#: Attention kernels by what remarks call them, the first that is named; Transformer Engine's is cuDNN's.
_ATTENTION = (
    ("fa2", r"flex[- ]?att|torch ?sdpa|flash[- ]?att\w*[- ]?v?2|\bfa2\b"),
    ("cudnn", r"cudnn|(?-i:\bTE\b)|transformer[- ]engine|flash[- ]?att\w*[- ]?v?[34]|\bfa[34]\b"),
)
#: A paper of the first half of a year tells of runs of the year before.
_PAPER_MONTH = 6


def precision_of(row: PublishedRow) -> str | None:
    """Return the precision of the matrix products, or None where the row does not say."""
    text = row.text("precision").lower()
    return next((name for name, pattern in _PRECISIONS if re.search(pattern, text)), None)


def recipe_of(row: PublishedRow) -> str | None:
    """Return how a low precision is scaled, or None where the row does not say."""
    text = row.text("precision").lower()
    return next((name for name, pattern in _RECIPES if re.search(pattern, text)), None)


def recompute_of(row: PublishedRow, torch_like: bool) -> str | None:
    """Return what is repeated, or None where the row does not say."""
    text = row.text("recompute").lower()
    if not text:
        stated = r"(?<!no )(?<!without )(?<!selective )(?:full|with|using)\s+(?:full )?(?:activation )?"
        notes = row.text("notes").lower()
        return "full" if re.search(rf"{stated}(?:checkpointing|recompute|recomputation)\b", notes) else None
    if text.startswith(("none", "no", "false", "off", "0", "disabled")):
        return "none"
    if "selective" in text or "partial" in text:
        return "selective-op" if torch_like else "selective"
    whole = r"full|uniform|block|true|yes|\bon\b|^1$|every layer|all layers|checkpoint|remat|recomput"
    return "full" if re.search(whole, text) else None


def attention_of(row: PublishedRow) -> str | None:
    """Return the attention kernel that remarks name, or None."""
    notes = row.text("notes")
    return next((name for name, pattern in _ATTENTION if re.search(pattern, notes, re.IGNORECASE)), None)


def compiled_of(row: PublishedRow) -> bool | None:
    """Return whether the model was compiled, or None where remarks do not say; a compiled loss is not the model.

    PyTorch compiles what it is asked to: where a remark says that nobody said so, it did not (torchtitan's own files of
    2024 have `compile = false`).
    """
    notes = re.sub(r"(?i)torch\.?compile of the loss|compiled loss", "eager", row.text("notes"))
    notes = re.sub(r"(?i)torch\.?compile (?:is )?(?:off|not stated|not known)", "eager", notes)
    if re.search(r"(?i)\b(?:no|without|not) (?:torch\.?)?compil", notes):
        return False
    if re.search(r"(?i)torch\.?compile|\bcompiled\b", notes):
        return True
    return False if re.search(r"(?i)\beager\b", notes) else None


def has_graphs(row: PublishedRow) -> bool:
    """Say whether remarks state that a step is captured in CUDA graphs."""
    return bool(re.search(r"(?i)(?<!no )(?<!without )cuda ?graphs?\b", row.text("notes")))


def dispatcher_of(row: PublishedRow) -> str | None:
    """Return how remarks say that tokens reach their experts, or None."""
    if re.search(r"(?i)\b(?:deep|hybrid)-?ep\b", row.text("notes")):
        return "deepep"
    return "alltoall" if re.search(r"(?i)(?:standard|plain|nccl) all-?to-?all", row.text("notes")) else None


def small_vocab(row: PublishedRow) -> int | None:
    """Return the vocabulary of made-up data that a remark states ("Vocab Size 256 (padded, MockDataModule)").

    The output layer that is counted is the model's, the one that is multiplied is this.
    """
    stated = re.search(r"(?i)vocab\w*(?: size)?[\s:=]*([\d,]+)[^.;]*mock", row.text("notes"))
    return int(stated.group(1).replace(",", "")) if stated else None


def has_adapters(row: PublishedRow) -> bool:
    """Say whether only adapters are trained (LoRA): the weights are frozen."""
    text = f"{row.text('model')} {row.text('notes')} {row.text('source')}"
    return bool(re.search(r"\b(?:q?lora|peft|adapters?)\b", text, re.IGNORECASE))


def year_of(row: PublishedRow) -> int:
    """Return the year of the software: of the paper, the container or the benchmark round, or else of the part."""
    text = f"{row.text('source')} {row.text('notes')}"
    if found := re.search(r"arxiv[ :]*(\d\d)(0[1-9]|1[0-2])\.\d{4,5}", text, re.IGNORECASE):
        return 2000 + int(found.group(1)) - (int(found.group(2)) <= _PAPER_MONTH)
    if found := re.search(r"MLPerf.*?v?(\d\.\d)", text):
        return _MLPERF.get(found.group(1), 2025)
    if found := re.search(r"(?<![\d.])(2[0-9])\.(0[1-9]|1[0-2])(?!\d)", text):
        return 2000 + int(found.group(1))
    if found := re.search(r"(?<!\d)(20[12]\d)(?:[-/.]?(?:0[1-9]|1[0-2]))?(?!\d)", text):
        return int(found.group(1))
    return _FIRST_YEAR.get(parts().gpu(host_of(row).gpu).architecture, 2024)


def dated_year(row: PublishedRow) -> int | None:
    """Return the year of a date (2026-10, 2026-10-05) that a row names, else None."""
    found = re.search(r"(?<!\d)(20[12]\d)-(?:0[1-9]|1[0-2])(?!\d)", f"{row.text('source')} {row.text('notes')}")
    return int(found.group(1)) if found else None


def month_of(row: PublishedRow) -> int | None:
    """Return the month of a container ("26.04 NeMo Container") or a date (2025-10) that a row names, else None."""
    text = f"{row.text('source')} {row.text('notes')}"
    found = re.search(r"(?<![\d.])2[0-9]\.(0[1-9]|1[0-2])(?!\d)", text)  # a container wins over a report's date
    found = found or re.search(r"(?<!\d)20[12]\d-(0[1-9]|1[0-2])(?!\d)", text)
    return int(found.group(1)) if found else None


def is_jax(row: PublishedRow) -> bool:
    """Say whether a run is one of JAX's: MaxText and its like, or a TPU of which nothing else is said."""
    text = row.everything.lower()
    return bool(re.search(r"maxtext|paxml|\bjax\b|axlearn|tpu-recipes", text)) or (
        "tpu" in row.text("gpu").lower() and "torch" not in text
    )


def framework_of(row: PublishedRow) -> str:
    """Return the framework that a row's text points to."""
    text = row.everything.lower()
    if "automodel" in text:
        return "automodel"
    if re.search(r"megatron-?deepspeed|gpt-neox|gptneox|bigscience", text):
        return "deepspeed"
    if re.search(
        r"torchtitan|llm-foundry|fsdp|mosaic|pytorch/|litgpt|lightning|hugging|nanogpt|zero-?3|accelerate", text
    ):
        return "megatron" if "megatron" in text else "pytorch"
    if re.search(r"\bnemo\b|nvidia/nemo|dgxc|mlperf", text):
        return "nemo"
    if "deepspeed" in text and "megatron-lm" not in text:
        return "deepspeed"
    torch = re.search(r"\bpytorch\b|torch\.compile|prime-rl", text) and "megatron" not in text
    return "pytorch" if torch else "megatron"
