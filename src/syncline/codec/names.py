"""The names of codecs, one vocabulary for runtime, workloads and planner.

scheme("int8:block=128")     # the scheme; its `name` is the canonical form
canonical("onebit")          # "sign"; canonical("none") is "plain": nothing is encoded
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from syncline.codec.dense import Block, Cast, Dense, Sign
from syncline.codec.low_rank import LowRank
from syncline.codec.scheme import Scheme
from syncline.errors import CodecError

PLAIN = "plain"
"""No codec: the backend's own collectives, in the type that gradients have."""
ALIASES: Mapping[str, str] = {"none": PLAIN, "raw": PLAIN, "onebit": "sign", "1bit": "sign"}
"""Other names that are read, of a whole family."""
MAIN: Mapping[str, str] = {"powersgd": "rank"}
"""The parameter that may be given without its name, as in "powersgd:2"."""
BLOCK = {"block": "block"}
FAMILIES: Mapping[str, tuple[Callable[..., Scheme], Mapping[str, str]]] = {
    "fp32": (partial(Cast, "fp32"), {}),
    "fp16": (partial(Cast, "fp16"), {}),
    "bf16": (partial(Cast, "bf16"), {}),
    "int8": (partial(Block, 8), BLOCK),
    "int4": (partial(Block, 4), BLOCK),
    "sign": (Sign, BLOCK),
    "powersgd": (LowRank, {"rank": "rank"}),
}
"""Who makes each family, and its parameters with what they can be."""
EXAMPLES = "fp32, fp16, bf16, int8, int4:block=128, sign, powersgd:rank=4"


def scheme(text: str) -> Scheme:
    """Return the scheme of a name such as "int8", "int4:block=128" or "powersgd:rank=4"."""
    given, _, tail = text.strip().lower().partition(":")
    family = ALIASES.get(given.strip(), given.strip())
    if family not in FAMILIES:
        raise CodecError(
            f'there is no codec "{family or text}".',
            detail=f"There are: {', '.join(sorted(FAMILIES))}.",
            hint=f"For example: {EXAMPLES}.",
        )
    make, parameters = FAMILIES[family]
    options = _options(f"{MAIN[family]}={tail}" if family in MAIN and tail and "=" not in tail else tail, text)
    for key in options:
        if key not in parameters:
            known = ", ".join(parameters.values()) or "none"
            raise CodecError(f'codec "{family}" has no parameter "{key}".', detail=f"Its parameters: {known}.")
    return make(**{key: _whole(key, value) for key, value in options.items()})


def dense(text: str) -> Dense:
    """Return the scheme of a name that encodes elements, each stretch of them by itself; low rank does not."""
    found = scheme(text)
    if not isinstance(found, Dense):
        raise CodecError(
            f'codec "{found.name}" averages whole buckets in factors, and no stretch of elements by itself.',
            hint='Use "int8", "int4" or "sign" here.',
        )
    return found


def canonical(text: str) -> str:
    """Return the one name of what `text` names: a scheme's, or "plain"."""
    name = text.strip().lower()
    return PLAIN if ALIASES.get(name, name) == PLAIN else scheme(name).name


def _options(tail: str, part: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for pair in filter(None, tail.split(",")):
        key, equals, value = (piece.strip() for piece in pair.partition("="))
        if not (key and equals and value) or key in options:
            raise CodecError(
                f'"{pair}" in codec "{part}" is not one parameter=value.',
                hint='Write "int4:block=128".',
            )
        options[key] = value
    return options


def _whole(key: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise CodecError(f'codec parameter {key}="{text}" is not a whole number.') from None
