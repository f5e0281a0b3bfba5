"""Parameter counts against published ones, arithmetic against formulas, and shapes that cannot be."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from syncline.errors import DescriptionError
from syncline.workload.layer_list import LayerList
from syncline.workload.shape import Shape
from syncline.workload.zoo import model, names, transformer

# Published counts: model cards and papers; exact where the checkpoint's count is known.
PUBLISHED = {
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3-405b": 405_853_388_800,
    "llama2-7b": 6_738_415_616,
    "llama2-70b": 68_976_648_192,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-8b": 8_190_735_360,
    "bloom-176b": 176_247_271_424,
    "bert-large": 335_141_888,
    "llama3-1b": 1_235_814_400,
}
ROUNDED = {
    "gpt3-175b": 174.6e9, "opt-175b": 174.6e9, "palm-540b": 540.35e9, "megatron-1t": 1008.0e9, "mt-nlg-530b": 529.6e9,
    "deepseek-v3": 671.0e9, "qwen3-235b-a22b": 235.1e9, "qwen3-30b-a3b": 30.5e9, "gpt-oss-120b": 116.8e9,
    "mixtral-8x22b": 140.6e9, "gpt-neox-20b": 20.55e9, "resnet-50": 25.6e6, "deepseek-v2": 235.7e9,
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_the_published_ones(name: str) -> None:
    assert model(name).params == PUBLISHED[name]


@pytest.mark.parametrize("name", ROUNDED)
def test_parameters_agree_with_rounded_counts(name: str) -> None:
    assert model(name).params == pytest.approx(ROUNDED[name], rel=0.002)


@pytest.mark.parametrize(
    ("name", "active"), [("deepseek-v3", 37e9), ("qwen3-235b-a22b", 22e9), ("mixtral-8x7b", 12.9e9)]
)
def test_active_parameters(name: str, active: float) -> None:
    assert transformer(name).active_params == pytest.approx(active, rel=0.02)


def test_flops_of_a_token_follow_megatron_bridge() -> None:
    # 37,556 tokens/s and 1,933 TFLOP/s of one row of its table; DeepSeek-V3 3,848 and 961 of another.
    assert transformer("llama3-8b").flops_per_token(8192) == pytest.approx(1933e12 / 37556, rel=0.002)
    assert transformer("deepseek-v3").flops_per_token(4096) == pytest.approx(961e12 / 3848, rel=0.005)


def test_resnet_and_dlrm_are_layer_lists() -> None:
    resnet = model("resnet-50")
    assert isinstance(resnet, LayerList)
    assert resnet.forward_flops == pytest.approx(8.2e9, rel=0.01)  # 4.1 GMAC
    stem = 2 * 3 * 64 * 49 * 112**2
    assert resnet.flops_per_sample == pytest.approx(3 * resnet.forward_flops - stem)
    dlrm = model("dlrm")
    assert isinstance(dlrm, LayerList)
    assert dlrm.exchanged_elements == 26 * 128
    assert dlrm.replicated_params < 3e6


@pytest.mark.parametrize(
    ("said", "meant"), [("Llama-3.1-405B", "llama3-405b"), ("GPT3", "gpt3-175b"), ("llama 33b", "llama-33b")]
)
def test_other_spellings_find_their_model(said: str, meant: str) -> None:
    assert model(said).name == meant


def test_an_unknown_model_names_close_ones() -> None:
    with pytest.raises(DescriptionError, match=r'there is no model "lama3-70"') as error:
        model("lama3-70")
    assert "llama3-70b" in error.value.detail


def test_every_model_has_a_source() -> None:
    assert all(model(name).source for name in names())


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"hidden": 1000, "heads": 7}, "does not divide by 7 heads"),
        ({"hidden": 1024, "heads": 8, "kv_heads": 3}, "do not share 3 key heads"),
        ({"hidden": 1024, "heads": 8, "moe": {"experts": 4, "top_k": 8, "ffn": 1024}}, "there are 4; lower top_k"),
    ],
)
def test_shapes_that_cannot_be(fields: dict[str, object], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        Shape.model_validate({"layers": 2, "vocab": 100, **fields})


def test_a_sliding_window_shortens_the_mean_span() -> None:
    shape = transformer("gpt-oss-120b")
    assert shape.mean_span(8192) == pytest.approx((4096 + 128) / 2)
