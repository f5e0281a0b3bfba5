"""The layers of each pipeline stage and chunk, as frameworks take them.

>>> stage_layout(126, 16, 8)[0]
(0, 1, 1, 1, 1, 1, 1, 1)
>>> [sum(chunks) for chunks in stage_layout(61, 16)]
[3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 3, 3]
"""

from __future__ import annotations

from syncline.errors import DescriptionError

#: Embedding, output layer and one layer of multi-token prediction may count as layers when a model is cut.
MOST_ENDS = 3


def even_ends(layers: int, chunks: int, most: int = MOST_ENDS) -> int | None:
    """Return how many ends count as layers so that the chunks are even (0, 2 or 3); None where none does."""
    return next((ends for ends in (0, 2, 3) if ends <= most and (layers + ends) % chunks == 0), None)


def stage_layout(layers: int, pp: int, virtual: int = 1) -> tuple[tuple[int, ...], ...]:
    """Return the layers of every chunk of every stage; chunk `c` of stage `s` is part `c * pp + s` of the model."""
    chunks = pp * virtual
    ends = even_ends(layers, chunks, MOST_ENDS if virtual > 1 else 2)
    if ends is None and virtual > 1:
        raise DescriptionError(
            f"{layers} layers do not divide into pp {pp} x virtual {virtual} = {chunks} chunks.",
            detail="Rule virtual-stages: chunks of an interleaved pipeline hold the same number of layers; embedding "
            "and output layer may count as one each.",
            hint=f"Possible: virtual {', '.join(str(v) for v in virtual_choices(layers, pp))}.",
        )
    each, over = divmod(layers, chunks)
    parts = [each] * chunks
    if ends:
        parts = [(layers + ends) // chunks] * chunks
        parts[0] -= 1
        parts[-1] -= ends - 1
    elif over:
        # The middle stages take what does not divide, then the first; the output layer's stage takes it last.
        for stage in [*range(1, pp - 1), 0, pp - 1][:over]:
            parts[stage] += 1
    return tuple(tuple(parts[chunk * pp + stage] for chunk in range(virtual)) for stage in range(pp))


def virtual_choices(layers: int, pp: int) -> list[int]:
    """Return the chunks a stage that cut the layers evenly."""
    return [1, *(v for v in range(2, layers // pp + 2) if even_ends(layers, pp * v) is not None)]
