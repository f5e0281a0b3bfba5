"""The names of codecs, one vocabulary for runtime, workloads and planner.

scheme("int8:block=128")      # the scheme; its `name` is the canonical form
canonical("onebit")          # "sign"; canonical("none") is "plain": nothing is encoded
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from syncline.codec.chain import Chain
from syncline.codec.dense import Block, Cast, Fp8, Sign
from syncline.codec.low_rank import LowRank
from syncline.codec.scheme import Scheme
from syncline.codec.sparse import TopK
from syncline.errors import CodecError

PLAIN = "plain"
"""No codec: the backend's own collectives, in the type that gradients have."""
ALIASES: Mapping[str, str] = {"none": PLAIN, "raw": PLAIN, "onebit": "sign", "1bit": "sign"}
"""Other names that are read, of a whole family."""
REMOVED: Mapping[str, str] = {"ternary": "sign or int4", "randomk": "topk"}
"""Families of earlier versions, and what to use instead."""
MAIN: Mapping[str, str] = {"topk": "keep", "powersgd": "rank"}
"""The parameter that may be given without its name, as in "topk:0.01"."""
ROUNDED = {"block": "block", "round": "round (nearest, stochastic)"}
FAMILIES: Mapping[str, tuple[Callable[..., Scheme], Mapping[str, str]]] = {
    "fp32": (partial(Cast, "fp32"), {}),
    "fp16": (partial(Cast, "fp16"), {}),
    "bf16": (partial(Cast, "bf16"), {}),
    "fp8": (Fp8, {"format": "format (e4m3, e5m2)", "block": "block"}),
    "int8": (partial(Block, 8), ROUNDED),
    "int4": (partial(Block, 4), ROUNDED),
    "sign": (Sign, {"block": "block"}),
    "topk": (TopK, {"keep": "keep"}),
    "powersgd": (LowRank, {"rank": "rank"}),
}
"""Who makes each family, and its parameters with what they can be."""
EXAMPLES = (
    "fp32, fp16, bf16, fp8, int8, int8:round=stochastic, int4:block=128, sign, topk:keep=0.01, "
    "topk:keep=0.01+int8, powersgd:rank=4"
)


def scheme(text: str) -> Scheme:
    """Return the scheme of a name such as "int8", "int4:block=128,round=stochastic" or "topk:keep=0.01+int8"."""
    first, *rest = (_single(part, text) for part in text.strip().lower().split("+"))
    if not rest:
        return first
    if len(rest) == 1 and isinstance(first, TopK):
        return Chain(first, rest[0])
    raise CodecError(
        f'"{text}" chains what cannot be chained: only topk, and then one codec for the values it keeps.',
        hint='For example "topk:keep=0.01+int8".',
    )


def canonical(text: str) -> str:
    """Return the one name of what `text` names: a scheme's, or "plain"."""
    name = text.strip().lower()
    return PLAIN if ALIASES.get(name, name) == PLAIN else scheme(name).name


def _single(part: str, whole: str) -> Scheme:
    given, _, tail = part.strip().partition(":")
    family = ALIASES.get(given, given)
    if family in REMOVED:
        raise CodecError(
            f'codec "{family}" was removed: another codec of ours is at least as good.', hint=f"Use {REMOVED[family]}."
        )
    if family not in FAMILIES:
        raise CodecError(
            f'there is no codec "{family or whole}".',
            detail=f"There are: {', '.join(sorted(FAMILIES))}.",
            hint=f"For example: {EXAMPLES}.",
        )
    make, parameters = FAMILIES[family]
    options = _options(f"{MAIN[family]}={tail}" if family in MAIN and tail and "=" not in tail else tail, part)
    for key in options:
        if key not in parameters:
            known = ", ".join(parameters.values()) or "none"
            raise CodecError(f'codec "{family}" has no parameter "{key}".', detail=f"Its parameters: {known}.")
    return make(**{key: _READERS.get(key, str)(value) for key, value in options.items()})


def _options(tail: str, part: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for pair in filter(None, tail.split(",")):
        key, equals, value = (piece.strip() for piece in pair.partition("="))
        if not (key and equals and value) or key in options:
            raise CodecError(
                f'"{pair}" in codec "{part}" is not one parameter=value.',
                hint='Write "int8:block=128,round=stochastic".',
            )
        options[key] = value
    return options


def _whole(key: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise CodecError(f'codec parameter {key}="{text}" is not a whole number.') from None


def _share(text: str) -> float:
    try:
        return float(text.removesuffix("%")) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise CodecError(
            f'codec parameter keep="{text}" is not a number.', hint='Write "keep=0.01" or "keep=1%".'
        ) from None


_READERS: Mapping[str, Callable[[str], object]] = {
    "block": partial(_whole, "block"),
    "rank": partial(_whole, "rank"),
    "keep": _share,
}
