"""Models that are not transformers, as lists of layers: a vision model and a recommendation model.

A layer says what one sample costs in it: forward operations, parameters, and the bytes that its output has. Embedding
tables too large for one device are split over the ranks, and their rows travel by all-to-all.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import pairwise

from pydantic import Field

from syncline.describe.quantity import Strict


class Layer(Strict):
    """One kind of layer, `count` of them alike; all figures for one sample and one layer."""

    name: str
    count: int = Field(default=1, ge=1)
    flops: float = Field(ge=0, description="forward operations of one sample")
    params: int = Field(default=0, ge=0)
    out_elements: int = Field(default=0, ge=0, description="elements of its output for one sample")
    sharded: bool = Field(default=False, description="split over the ranks; outputs travel by all-to-all")


class LayerList(Strict):
    """A model as layers in order; a `token` is one sample."""

    name: str
    layers: tuple[Layer, ...] = Field(min_length=1)
    efficiency: float = Field(default=1.0, gt=0, le=1, description="of a large matrix product that its kernels reach")
    source: str = ""

    @property
    def params(self) -> int:
        """All parameters."""
        return sum(layer.count * layer.params for layer in self.layers)

    @property
    def replicated_params(self) -> int:
        """Parameters that every rank holds, and whose gradients are reduced."""
        return sum(layer.count * layer.params for layer in self.layers if not layer.sharded)

    @property
    def flops_per_sample(self) -> float:
        """Forward and backward operations of one sample; what the first layer reads needs no gradient."""
        first = next((layer.flops for layer in self.layers if layer.flops), 0.0)
        return 3 * self.forward_flops - first

    @property
    def forward_flops(self) -> float:
        """Forward operations of one sample."""
        return sum(layer.count * layer.flops for layer in self.layers)

    @property
    def elements_per_sample(self) -> int:
        """Elements that the layers write for one sample, forward."""
        return sum(layer.count * layer.out_elements for layer in self.layers)

    @property
    def exchanged_elements(self) -> int:
        """Elements of one sample that cross between ranks because their layer is split."""
        return sum(layer.count * layer.out_elements for layer in self.layers if layer.sharded)


def _conv(name: str, size: int, cin: int, cout: int, kernel: int, count: int = 1) -> Layer:
    """Return a convolution with its normalisation; `size` is the side of its output."""
    weights = cin * cout * kernel * kernel
    return Layer(
        name=name, count=count, flops=2.0 * weights * size * size, params=weights + 2 * cout,
        out_elements=cout * size * size,
    )  # fmt: skip


def _resnet_stage(number: int, blocks: int, size: int, cin: int, width: int) -> list[Layer]:
    before = size if number == 0 else 2 * size  # the first block reduces the side in its 3x3 convolution
    layers = [
        _conv(f"stage{number}.down", size, cin, 4 * width, 1),
        _conv(f"stage{number}.0.conv1", before, cin, width, 1),
        _conv(f"stage{number}.conv2", size, width, width, 3, blocks),
        _conv(f"stage{number}.conv3", size, width, 4 * width, 1, blocks),
    ]
    if blocks > 1:
        layers.append(_conv(f"stage{number}.conv1", size, 4 * width, width, 1, blocks - 1))
    return layers


def _resnet50() -> LayerList:
    layers = [_conv("stem", 112, 3, 64, 7)]
    cin = 64
    for number, (blocks, size) in enumerate(((3, 56), (4, 28), (6, 14), (3, 7))):
        layers += _resnet_stage(number, blocks, size, cin, 64 * 2**number)
        cin = 256 * 2**number
    layers.append(Layer(name="classifier", flops=2.0 * 2048 * 1000, params=2048 * 1000 + 1000, out_elements=1000))
    # 0.55: convolutions with batch normalisation, MLPerf v0.7 to v2.1 runs of one A100 are near 2,900 images a second.
    return LayerList(name="resnet-50", layers=tuple(layers), efficiency=0.55, source="arXiv 1512.03385, v1.5")


def _mlp(name: str, widths: tuple[int, ...]) -> list[Layer]:
    return [
        Layer(name=f"{name}.{i}", flops=2.0 * a * b, params=a * b + b, out_elements=b)
        for i, (a, b) in enumerate(pairwise(widths))
    ]


def _dlrm() -> LayerList:
    """Return the MLPerf DLRM (Criteo 1TB): 26 tables of 128 columns, a bottom and a top perceptron."""
    rows = 204_184_588 - 26  # sum of table rows at a limit of 40 million per table
    tables = Layer(name="tables", flops=0.0, params=rows * 128, out_elements=26 * 128, sharded=True)
    interact = Layer(name="interaction", flops=2.0 * 27 * 27 * 128, out_elements=27 * 26 // 2 + 128)
    layers = [tables, *_mlp("bottom", (13, 512, 256, 128)), interact, *_mlp("top", (479, 1024, 1024, 512, 256, 1))]
    return LayerList(
        name="dlrm",
        layers=tuple(layers),
        efficiency=0.5,
        source="MLPerf Training v0.7 DLRM, Criteo 1TB; rows estimated",
    )


@cache
def layer_lists() -> Mapping[str, LayerList]:
    """Return the models that are lists of layers, by name."""
    return {item.name: item for item in (_resnet50(), _dlrm())}
