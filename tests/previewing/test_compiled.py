"""Memory of compiled code, worked out by hand on seven operators."""

from __future__ import annotations

from dataclasses import replace

from syncline.fabric import load
from syncline.previewing.compiled import without_fused
from syncline.previewing.holders import peak_memory
from syncline.previewing.price import Pricer
from syncline.previewing.record import Capture, CapturedOp, GpuStorage, KernelCall
from syncline.sim.step.machine import machine_from_fabric

PRODUCT, COPY = 0, 1
SIZES = {0: 1000, 1: 100, 2: 200, 3: 10, 4: 8, 5: 100, 6: 50, 7: 50}
#: kernel, phase, read, written: a product, its copy of twice the width, a sum of it, a product; then backwards
OPS = (
    (PRODUCT, "forward", [0], [1]), (COPY, "forward", [1], [2]), (COPY, "forward", [2], [3]),
    (PRODUCT, "forward", [3, 0], [4]), (COPY, "backward", [2], [5]), (PRODUCT, "backward", [5, 0], [6]),
    (PRODUCT, "backward", [3, 0], [7]),
)  # fmt: skip
MEMORY = (
    (0, 0, 1000), (0, 1, 100), (1, 2, 200), (2, 1, -100), (2, 3, 10), (3, 4, 8), (4, 5, 100), (5, 2, -200), (5, 6, 50),
    (6, 5, -100), (6, 7, 50), (7, 3, -10), (7, 6, -50), (7, 7, -50),
)  # fmt: skip


def _captured(compiled: int, memory: tuple[tuple[int, int, int], ...] = MEMORY) -> Capture:
    shape = (((10,), "float32", 10),)
    kernels = tuple(
        KernelCall(f"aten.{name}.default", flops, shape, shape, [], {}, False, False, False, "aten")
        for name, flops in (("mm", 1000), ("_to_copy", 0))
    )
    ops = tuple(CapturedOp("kernel", 0, kernel, 0, 0, phase, [], [compiled, a, b]) for kernel, phase, a, b in OPS)
    made = tuple(GpuStorage(size, 0, 0, 0, "" if each else "parameters") for each, size in SIZES.items())
    return Capture(0, 1, ops, kernels, ("",), {0: "default"}, (), made, memory)


def _peak(captured: Capture) -> int:
    pricer = Pricer(machine_from_fabric(load("h100-64-rail")))
    return peak_memory(without_fused(captured, pricer), 80e9).peak_bytes


def test_a_wide_copy_is_made_again_and_its_gradient_takes_the_place_of_what_it_is_made_of() -> None:
    """Uncompiled, 1000 + 200 + 10 + 8 + 100 are held when the backward begins.

    Compiled, the copy (200) is never made: the product's output (100) stays, and the gradient (100) is written over it.
    What the last product needs (10) is kept. The peak is then at the product after it: 1000 + 10 + 8 + 100 + 50.
    """
    assert _peak(_captured(0)) == 1318
    assert _peak(_captured(1)) == 1168


def test_what_nothing_compiled_reads_is_left_alone() -> None:
    captured = _captured(0)
    assert without_fused(captured, Pricer(machine_from_fabric(load("h100-64-rail")))) is captured


def test_every_allocation_is_freed_once_and_after_it_was_made() -> None:
    fused = without_fused(_captured(1), Pricer(machine_from_fabric(load("h100-64-rail"))))
    held: dict[int, int] = {}
    for _, each, change in fused.memory:
        held[each] = held.get(each, 0) + change
        assert 0 <= held[each] <= SIZES[each]
    assert {each for each, size in held.items() if size} == {0, 4}  # as in the capture: parameters and the loss


def test_a_tensor_that_is_cheaper_than_its_inputs_is_kept() -> None:
    """A copy of half the width costs less to keep than what it is made of."""
    captured = _captured(1)
    narrow = [replace_size(each, 50) if number == 2 else each for number, each in enumerate(captured.allocations)]
    memory = tuple((op, each, change // 4 if each == 2 else change) for op, each, change in MEMORY)
    assert _peak(replace(captured, allocations=tuple(narrow), memory=memory)) == 1000 + 50 + 10 + 8 + 100


def replace_size(each: GpuStorage, size: int) -> GpuStorage:
    return each._replace(size_bytes=size)
