"""The names of codecs, one vocabulary for runtime, workloads and planner.

scheme("int8:block=128")      # the scheme; its `name` is the canonical form
canonical("onebit")          # "sign"; canonical("none") is "plain": nothing is encoded
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from syncline.codec.block import Block
from syncline.codec.cast import Cast
from syncline.codec.chain import Chain
from syncline.codec.fp8 import Fp8
from syncline.codec.low_rank import LowRank
from syncline.codec.scheme import Scheme
from syncline.codec.sign import Sign
from syncline.codec.sparse import RandomK, TopK
from syncline.codec.ternary import Ternary
from syncline.errors import CodecError

PLAIN = "plain"
"""No codec: the backend's own collectives, in the type that gradients have."""
ALIASES: Mapping[str, str] = {"none": PLAIN, "raw": PLAIN, "onebit": "sign", "1bit": "sign"}
"""Other names that are read, of a whole family."""
MAIN: Mapping[str, str] = {"topk": "keep", "randomk": "keep", "powersgd": "rank"}
"""The parameter that may be given without its name, as in "topk:0.01"."""

Options = dict[str, str]
Maker = Callable[[Options], Scheme]

EXAMPLES = (
    "fp32, fp16, bf16, fp8, int8, int8:round=stochastic, int4:block=128, sign, ternary, topk:keep=0.01, "
    "topk:keep=0.01+int8, randomk:keep=0.05, powersgd:rank=4"
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
    maker = FAMILIES.get(family)
    if maker is None:
        raise CodecError(
            f'there is no codec "{family or whole}".',
            detail=f"There are: {', '.join(sorted(FAMILIES))}.",
            hint=f"For example: {EXAMPLES}.",
        )
    options = _options(f"{MAIN[family]}={tail}" if family in MAIN and tail and "=" not in tail else tail, part)
    made = maker(options)
    if options:
        known = ", ".join(PARAMETERS[family]) or "none"
        raise CodecError(
            f'codec "{family}" has no parameter "{next(iter(options))}".', detail=f"Its parameters: {known}."
        )
    return made


def _options(tail: str, part: str) -> Options:
    options: Options = {}
    for pair in filter(None, tail.split(",")):
        key, equals, value = (piece.strip() for piece in pair.partition("="))
        if not (key and equals and value) or key in options:
            raise CodecError(
                f'"{pair}" in codec "{part}" is not one parameter=value.',
                hint='Write "int8:block=128,round=stochastic".',
            )
        options[key] = value
    return options


def _int(options: Options, key: str, default: int) -> int:
    text = options.pop(key, str(default))
    try:
        return int(text)
    except ValueError:
        raise CodecError(f'codec parameter {key}="{text}" is not a whole number.') from None


def _keep(options: Options, default: float) -> float:
    text = options.pop("keep", str(default))
    try:
        return float(text.removesuffix("%")) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise CodecError(
            f'codec parameter keep="{text}" is not a number.', hint='Write "keep=0.01" or "keep=1%".'
        ) from None


def _block(bits: int, block: int) -> Maker:
    return lambda o: Block(bits, _int(o, "block", block), o.pop("round", "nearest"))


FAMILIES: Mapping[str, Maker] = {
    "fp32": lambda o: Cast("fp32"),
    "fp16": lambda o: Cast("fp16"),
    "bf16": lambda o: Cast("bf16"),
    "fp8": lambda o: Fp8(o.pop("format", "e4m3"), _int(o, "block", 256)),
    "int8": _block(8, 256),
    "int4": _block(4, 512),
    "sign": lambda o: Sign(_int(o, "block", 512)),
    "ternary": lambda o: Ternary(_int(o, "block", 256), o.pop("round", "stochastic")),
    "topk": lambda o: TopK(_keep(o, 0.05)),
    "randomk": lambda o: RandomK(_keep(o, 0.01)),
    "powersgd": lambda o: LowRank(_int(o, "rank", 4)),
}
PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "fp32": (),
    "fp16": (),
    "bf16": (),
    "fp8": ("format (e4m3, e5m2)", "block"),
    "int8": ("block", "round (nearest, stochastic)"),
    "int4": ("block", "round (nearest, stochastic)"),
    "sign": ("block",),
    "ternary": ("block", "round (nearest, stochastic)"),
    "topk": ("keep",),
    "randomk": ("keep",),
    "powersgd": ("rank",),
}
