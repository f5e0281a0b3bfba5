"""The model of a row: one that ships where name and columns agree, else a shape from its columns or parameter count."""

from __future__ import annotations

import re
from functools import cache

from pydantic import ValidationError
from research.published import table
from research.training.rows import PublishedRow

from syncline.describe.mistakes import first_mistake
from syncline.describe.plain import JsonObject
from syncline.errors import DescriptionError
from syncline.workload.layer_list import LayerList, layer_lists
from syncline.workload.shape import Shape, nearest_divisor
from syncline.workload.zoo import shapes

_GATED = re.compile(
    r"llama|qwen|mistral|mixtral|deepseek|gemma|\byi\b|nemotron-?h|palm|gpt.?oss|grok|olmo|internlm|baichuan|kimi|granite",
    re.IGNORECASE,
)
_EXPERTS = re.compile(r"\d+x\d+b|-?a\d+(\.\d+)?b\b|\bmoe\b|\bswitch\b|glam|mixture|\d+e\b", re.IGNORECASE)
_ENCODER = re.compile(r"bert|roberta|electra", re.IGNORECASE)
_OTHER = re.compile(r"\bt5\b|diffusion|unet|u-net|ssd|rnn|whisper|mamba|\bvit\b|swin|clip", re.IGNORECASE)
#: Width over depth of published decoders, near enough from 1B to 500B (GPT-3, Llama, PaLM).
ASPECT = 128
#: Tokens of the samples that fine-tuning benchmarks pack (SQuAD: 200 to 500).
PACKED = 512


@cache
def known_shapes() -> tuple[tuple[str, Shape], ...]:
    """Return every shape with its name in bare letters and digits, longest first."""
    more = table("training-models.yaml")["models"]
    extra = {name: Shape.model_validate({"name": name, "gated": True, **cells}) for name, cells in more.items()}
    pairs = [(_bare(name), shape) for name, shape in {**extra, **shapes()}.items()]
    return tuple(sorted(pairs, key=lambda pair: -len(pair[0])))


def _bare(name: str) -> str:
    text = re.sub(r"[^a-z0-9.]+", "", name.lower())
    text = re.sub(r"^(?:mlperf|meta|nvidia|google|openai|megatron(?=gpt|llama)|hf)+", "", text)
    text = re.sub(r"(?<=llama)v(?=\d)", "", text)
    return re.sub(r"llama3\.[0-3]", "llama3", text)


def model_of(row: PublishedRow) -> tuple[Shape | LayerList, str]:
    """Return the model of a row, and a remark where its shape was guessed."""
    layers, hidden, heads = (row.whole(c) for c in ("layers", "hidden", "heads"))
    name = row.text("model")
    known = _known(name, row.number("params_b"))
    if known and (layers is None or (known.layers, known.hidden) == (layers, hidden)):
        vocab = row.whole("vocab") or known.vocab
        return _packed(known.model_copy(update={"vocab": vocab}), row)
    if cut := _cut(row, layers, hidden):
        return cut, f"{cut.layers} layers of {cut.name}"
    if not layers or not hidden:
        if listed := _listed(name):
            return listed, ""
        return _typical(row)
    if _OTHER.search(name):
        raise DescriptionError(f'"{name}" is not a decoder or encoder of equal layers; such models are not modelled')
    if family := _of_family(row, layers, hidden):
        return family.model_copy(update={"vocab": row.whole("vocab") or family.vocab}), f"read as {family.name}"
    if _EXPERTS.search(name) or _holds_experts(row, layers, hidden):
        raise DescriptionError(f'the experts of "{name}" (their number, width and top-k) are not published')
    return _from_columns(row, layers, hidden, heads or max(hidden // 128, 1)), "" if heads else "heads of 128 assumed"


def _packed(shape: Shape, row: PublishedRow) -> tuple[Shape, str]:
    """Return a model whose attention stays inside the short samples that fine-tuning packs into a sequence."""
    text = f"{row.text('model')} {row.text('source')} {row.text('notes')}"
    if not re.search(r"packed", text, re.IGNORECASE) or not re.search(
        r"\bsft\b|lora|fine-?tun|short (?:documents|samples)", text, re.IGNORECASE
    ):
        return shape, ""
    remark = f"packed samples: attention within {PACKED} tokens"
    return shape.model_copy(update={"window": PACKED, "window_share": 1.0}), remark


def _known(name: str, params_b: float | None) -> Shape | None:
    shape = _named(name)
    if shape is None:
        return None
    size = min(abs(params / 1e9 / params_b - 1) if params_b else 0.0 for params in _sizes(shape))
    return shape if size < 0.2 else None


def _named(name: str) -> Shape | None:
    text = _bare(name)
    exact = (s for key, s in known_shapes() if text.startswith(key) or (len(key) >= 8 and key in text))
    return next(exact, None) or _without_active(text)


def _without_active(text: str) -> Shape | None:
    """Return the model with experts that a name without its active parameters means ("Qwen3 MoE 30B": 30B-A3B)."""
    total = re.sub(r"moe", "", text)
    named = (s for key, s in known_shapes() if s.moe and re.fullmatch(rf"{re.escape(total)}a\d+(?:\.\d+)?b", key))
    return next(named, None) if total else None


def _cut(row: PublishedRow, layers: int | None, hidden: int | None) -> Shape | None:
    """Return a known model with other layers: on few GPUs a proxy of a large model is trained, some of its layers."""
    shape = _named(row.text("model"))
    if shape is None or not layers or shape.moe is not None or shape.mixers or shape.hidden != hidden:
        return None
    if (row.whole("heads") or shape.heads) != shape.heads:
        return None
    cut = shape.model_copy(update={"layers": layers, "vocab": row.whole("vocab") or shape.vocab})
    params = row.number("params_b")
    return cut if params and abs(cut.params / 1e9 / params - 1) < 0.1 else None


def _of_family(row: PublishedRow, layers: int, hidden: int) -> Shape | None:
    """Return the model with experts that shares a row's first word, layers, width and parameters.

    torchtitan's "DeepSeek-V3 16B" has the shape of DeepSeek-V2-Lite.
    """
    word, params = re.match(r"[a-z]*", _bare(row.text("model"))), row.number("params_b")
    if word is None or len(word.group()) < 4 or not params:
        return None
    alike = (s for key, s in known_shapes() if key.startswith(word.group()) and s.moe)
    same = (s for s in alike if (s.layers, s.hidden) == (layers, hidden))
    return next((s for s in same if abs(s.params / 1e9 / params - 1) < 0.1), None)


def _holds_experts(row: PublishedRow, layers: int, hidden: int) -> bool:
    """Say whether a row's parameters are more than a block of its width holds: feed-forward of 12 times the width."""
    params, vocab = row.number("params_b"), row.whole("vocab") or 0
    return params is not None and params * 1e9 > 40 * layers * hidden**2 + 2 * vocab * hidden


def _sizes(shape: Shape) -> tuple[float, float]:
    return float(shape.params), float(shape.active_params)


def _listed(name: str) -> LayerList | None:
    text = _bare(name)
    keys = {"resnet50": "resnet-50", "resnet": "resnet-50", "dlrm": "dlrm"}
    return next((layer_lists()[model] for key, model in keys.items() if text.startswith(key)), None)


def _typical(row: PublishedRow) -> tuple[Shape, str]:
    """Return a decoder of the usual proportions with the parameters that a row states."""
    params, name = row.number("params_b"), row.text("model")
    if not params or params < 0.02 or _EXPERTS.search(name) or _OTHER.search(name):
        raise DescriptionError(f'the shape of "{name}" is not published (layers, hidden and heads are needed)')
    layers = max(round((params * 1e9 / 12 / ASPECT**2) ** (1 / 3)), 2)
    hidden = max(round((params * 1e9 / 12 / layers) ** 0.5 / 128), 1) * 128
    if (hidden // 128) % (tp := row.whole("tp") or 1):  # whoever splits the heads has as many as it takes
        hidden = max(round(hidden / 128 / tp), 1) * 128 * tp
        layers = max(round(params * 1e9 / 12 / hidden**2), 2)
    shape = _from_columns(row, layers, hidden, hidden // 128)
    return shape, f"shape not published: {layers} layers of {hidden} taken for {params:g}B parameters"


def _from_columns(row: PublishedRow, layers: int, hidden: int, heads: int) -> Shape:
    """Return a shape from numbers: a GPT block or a gated one, its open widths set by the parameter count."""
    name, vocab = row.text("model"), row.whole("vocab") or 51_200
    heads = heads if hidden % heads == 0 else nearest_divisor(hidden, heads)
    common: JsonObject = {
        "name": name or "model", "layers": layers, "hidden": hidden, "heads": heads, "vocab": vocab, "source": "row",
    }  # fmt: skip
    params = row.number("params_b")
    body = params * 1e9 / layers if params else None
    try:
        if _GATED.search(name):
            return Shape.model_validate(common | _gated_widths(body, layers, hidden, vocab))
        mpt, encoder = name.upper().startswith("MPT"), bool(_ENCODER.search(name))
        plain = {"tied": True, "positions": row.whole("seq") or 0, "biases": not mpt, "norm_biases": not mpt}
        return Shape.model_validate(
            common | plain | {"causal": not encoder} | _shared_keys(body, layers, hidden, heads, vocab)
        )
    except ValidationError as error:
        raise DescriptionError(first_mistake(error)) from None


def _gated_widths(body: float | None, layers: int, hidden: int, vocab: int) -> dict[str, int]:
    width = 8 * hidden // 3
    if body:
        rest = body - 2 * vocab * hidden / layers - 4 * hidden**2
        width = min(max(int(rest / (3 * hidden)), hidden), 16 * hidden)
    return {"gated": True, "ffn": width}


def _shared_keys(body: float | None, layers: int, hidden: int, heads: int, vocab: int) -> dict[str, int]:
    """Return key heads of a plain block whose parameters are too few for as many keys as heads.

    A block of 12 h^2 less 2 h^2 (1 - kv/heads): down to 10 h^2 the keys are shared, below that something else differs.
    """
    if not body:
        return {}
    blocks = body - vocab * hidden / layers
    missing = 12 - min(blocks, body - 2 * vocab * hidden / layers) / hidden**2
    if not 0.9 < missing < 2.1 or heads % 8:
        return {}
    return {"kv_heads": 8 if heads > 8 else 1}
