"""The layers of each pipeline stage and chunk, as frameworks take them.

>>> stage_layout(126, 16, 8)[0]
(0, 1, 1, 1, 1, 1, 1, 1)
>>> [sum(chunks) for chunks in stage_layout(61, 16)]
[3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 3, 3]
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from syncline.errors import DescriptionError

#: Embedding, output layer and one layer of multi-token prediction may count as layers when a model is cut.
MOST_ENDS = 3


def even_ends(layers: int, chunks: int, most: int = MOST_ENDS) -> int | None:
    """Return how many ends count as layers so that the chunks are even (0, 2 or 3); None where none does."""
    return next((ends for ends in (0, 2, 3) if ends <= most and (layers + ends) % chunks == 0), None)


Floats = npt.NDArray[np.float64]


def stage_layers(layers: Floats, pp: Floats, ends: Floats, head: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the layers of the first, of the fullest middle and of the last stage, in columns.

    `head` is what the output layer weighs, in layers. Where layers do not divide, the last stage has so many that the
    slowest stage is fastest, and the others share the rest, the middle ones before the first. `ends`: embedding and
    output layer count as a layer each, and all is even.
    """
    others = np.maximum(pp - 1, 1.0)

    def slowest(last: Floats) -> Floats:
        return np.asarray(np.maximum(np.ceil((layers - last) / others), last + head))

    fewer = np.clip(np.floor((layers + head) / pp - head), 1.0, np.floor(layers / pp))
    more = np.minimum(fewer + 1, np.ceil(layers / pp))
    last = np.where(slowest(more) <= slowest(fewer), more, fewer)
    last = np.where(layers % pp == 0, layers / pp, last)
    first, middle = np.floor((layers - last) / others), np.ceil((layers - last) / others)
    slots = (layers + 2) / pp
    even = ends > 0
    return np.where(even, slots - 1, first), np.where(even, slots, middle), np.where(even, slots - 1, last)


def stage_layout(layers: int, pp: int, virtual: int = 1, head: float = 1.0) -> tuple[tuple[int, ...], ...]:
    """Return the layers of every chunk of every stage; chunk `c` of stage `s` is part `c * pp + s` of the model.

    `head` is what the output layer weighs, in layers (`Shape.head_layers`).
    """
    chunks = pp * virtual
    ends = even_ends(layers, chunks, MOST_ENDS if virtual > 1 else 2)
    if ends is None and virtual > 1:
        raise DescriptionError(
            f"{layers} layers do not divide into pp {pp} x virtual {virtual} = {chunks} chunks.",
            detail="Rule virtual-stages: chunks of an interleaved pipeline hold the same number of layers; embedding "
            "and output layer may count as one each.",
            hint=f"Possible: virtual {', '.join(str(v) for v in virtual_choices(layers, pp))}.",
        )
    parts = [layers // chunks] * chunks
    if ends:
        parts = [(layers + ends) // chunks] * chunks
        parts[0] -= 1
        parts[-1] -= ends - 1
    elif layers % chunks:
        first, _, last = (int(x) for x in stage_layers(*(np.array(float(x)) for x in (layers, pp, 0, head))))
        over = layers - last - first * (pp - 1)
        parts = [first, *(first + (stage < over) for stage in range(pp - 2)), last] if pp > 2 else [first, last]
    return tuple(tuple(parts[chunk * pp + stage] for chunk in range(virtual)) for stage in range(pp))


def virtual_choices(layers: int, pp: int) -> list[int]:
    """Return the chunks a stage that cut the layers evenly."""
    return [1, *(v for v in range(2, layers // pp + 2) if even_ends(layers, pp * v) is not None)]
