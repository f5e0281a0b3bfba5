"""config.json files of several families, and files that are not one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from syncline.errors import DescriptionError
from syncline.sim.step.decode import cache_bytes, state_bytes
from syncline.workload.family.config import read_config, shape_from_config
from syncline.workload.zoo import transformer

DEEPSEEK = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128,
    "num_key_value_heads": 128, "intermediate_size": 18432, "vocab_size": 129280, "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048, "n_shared_experts": 1, "first_k_dense_replace": 3, "tie_word_embeddings": False,
}  # fmt: skip
QWEN3_MOE = {
    "model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32, "head_dim": 128,
    "num_key_value_heads": 4, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
    "num_experts_per_tok": 8, "vocab_size": 151936, "tie_word_embeddings": False,
}  # fmt: skip
GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}


@pytest.mark.parametrize(
    ("config", "params"),
    [
        (DEEPSEEK, transformer("deepseek-v3").params),
        (QWEN3_MOE, transformer("qwen3-30b-a3b").params),
        (GPT2, 124_439_808),
    ],
)
def test_parameters_of_a_config(config: dict[str, Any], params: int) -> None:
    assert shape_from_config(config).params == params


def test_a_config_that_is_no_language_model(tmp_path: Path) -> None:
    with pytest.raises(DescriptionError, match='has no "num_hidden_layers"'):
        shape_from_config({"hidden_size": 4, "num_attention_heads": 1, "vocab_size": 2})
    path = tmp_path / "config.json"
    path.write_text("{broken")
    with pytest.raises(DescriptionError, match="not JSON"):
        read_config(path)
    path.write_text('{"hidden_size": "wide", "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 8}')
    with pytest.raises(DescriptionError, match="hidden"):
        read_config(path)


def config(family: str, layers: int, hidden: int, heads: int, vocab: int, **more: object) -> dict[str, object]:
    return {"model_type": family, "num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads,
            "vocab_size": vocab, **more}  # fmt: skip


@pytest.mark.parametrize(
    ("given", "billions", "active"),
    [
        (config("falcon", 32, 4544, 71, 65024, multi_query=True, bias=False), 6.92, 6.92),
        (config("gpt_bigcode", 40, 6144, 48, 49152, multi_query=True, n_inner=24576, n_positions=8192), 15.52, 15.52),
        (config("phi", 32, 2560, 32, 51200, intermediate_size=10240), 2.78, 2.78),
        (config("nemotron", 32, 6144, 48, 256000, num_key_value_heads=8, intermediate_size=24576), 15.63, 15.63),
        (config("chatglm", 40, 4096, 32, 151552, multi_query_group_num=2, ffn_hidden_size=13696, kv_channels=128,
                add_qkv_bias=True), 9.40, 9.40),
        (config("dbrx", 40, 6144, 48, 100352, attn_config={"kv_n_heads": 8},
                ffn_config={"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4}), 131.6, 36.5),
        ({"model_type": "llama4", "text_config": config(
            "llama4_text", 48, 5120, 40, 202048, num_key_value_heads=8, head_dim=128, intermediate_size=8192,
            intermediate_size_mlp=16384, num_local_experts=128, num_experts_per_tok=1, interleave_moe_layer_step=2,
        )}, 400.7, 17.2),
    ],
)  # fmt: skip
def test_unusual_families_have_the_parameters_they_are_known_for(
    given: dict[str, object], billions: float, active: float
) -> None:
    shape = shape_from_config(given)
    assert shape.params / 1e9 == pytest.approx(billions, rel=2e-3)
    assert shape.active_params / 1e9 == pytest.approx(active, rel=5e-3)


def test_every_second_layer_of_gemma_2_has_a_window() -> None:
    shape = shape_from_config(config("gemma2", 42, 3584, 16, 256000, head_dim=256, sliding_window=4096))
    assert shape.window_share == 0.5


def test_what_is_no_stack_of_attention_is_refused() -> None:
    with pytest.raises(DescriptionError, match="t5 has an encoder and a decoder"):
        shape_from_config(config("t5", 24, 1024, 128, 32128, is_encoder_decoder=True))
    with pytest.raises(DescriptionError, match="zamba2 has attention blocks that share their weights"):
        shape_from_config(config("zamba2", 32, 4096, 32, 65536))
    with pytest.raises(DescriptionError, match="\"num_local_experts\" is 'eight'; it must be a whole number"):
        shape_from_config(config("mixtral", 32, 4096, 32, 32000, num_local_experts="eight"))
    with pytest.raises(DescriptionError, match='"llamma" is not a model_type that syncline knows'):
        shape_from_config(config("llamma", 32, 4096, 32, 32000))


COMMAND_R = {"model_type": "cohere", "hidden_size": 8192, "intermediate_size": 22528, "num_attention_heads": 64,
             "num_hidden_layers": 40, "vocab_size": 256000}  # fmt: skip
R7B = {"model_type": "cohere2", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
       "num_key_value_heads": 8, "num_hidden_layers": 32, "vocab_size": 256000}  # fmt: skip
OLMO = {"model_type": "olmo", "d_model": 4096, "n_heads": 32, "n_layers": 32, "mlp_ratio": 4, "mlp_hidden_size": 22016,
        "vocab_size": 50304, "tie_word_embeddings": False}  # fmt: skip


@pytest.mark.parametrize(("config", "billions"), [(COMMAND_R, 34.98), (R7B, 8.03), (OLMO, 6.888)])
def test_the_defaults_of_the_family(config: dict[str, Any], billions: float) -> None:
    assert shape_from_config(config).params / 1e9 == pytest.approx(billions, rel=0.005)


@pytest.mark.parametrize("family", ["rwkv7", "xlstm", "zamba", "clip", "siglip"])
def test_what_is_no_stack_of_layers_that_it_knows_is_refused_by_name(family: str) -> None:
    with pytest.raises(DescriptionError, match=f"{family} has "):
        shape_from_config(COMMAND_R | {"model_type": family})


FIXTURE = Path(__file__).parents[1] / "fixtures" / "configs.json"
MODELS = json.loads(FIXTURE.read_text())["models"]
REFUSED = {"facebook/opt-350m", "Zyphra/Zamba2-2.7B", "Zyphra/Zamba-7B-v1", "NX-AI/xLSTM-7b", "google-t5/t5-large",
           "openai/clip-vit-base-patch32", "openai/clip-vit-large-patch14",
           "google/siglip-so400m-patch14-384", "google/gemma-4-e2b", "MiniMaxAI/MiniMax-M3",
           "deepseek-ai/DeepSeek-V4-Flash", "moonshotai/Kimi-K3", "stepfun-ai/Step-3.7-Flash-FP8",
           "openai/whisper-large-v3", "distilbert/distilbert-base-uncased", "google-t5/t5-base",
           "microsoft/Phi-3-small-8k-instruct", "deepseek-ai/deepseek-vl2-tiny", "Qwen/Qwen-7B",
           "deepseek-ai/Janus-1.3B", "mistralai/Voxtral-Mini-3B-2507", "google/gemma-4-e4b", "liuhaotian/llava-v1.5-7b",
           "facebook/bart-large", "answerdotai/ModernBERT-base", "microsoft/deberta-v3-large", "apple/OpenELM-1_1B",
           "HuggingFaceM4/idefics2-8b", "tencent/Hunyuan-Large", "stepfun-ai/step3 (text)"}  # fmt: skip


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model["name"])
def test_parameters_of_public_models(model: dict[str, Any]) -> None:
    if model["name"] in REFUSED:
        with pytest.raises(DescriptionError, match=r" has an? | has |is not a model_type"):
            shape_from_config(model["config"])
        return
    params = shape_from_config(model["config"]).params
    for known in (model["published"], model["counted"]):
        assert known is None or params == pytest.approx(known, rel=0.005)


def test_enough_models_are_read() -> None:
    assert len(MODELS) - len(REFUSED) >= 195


def test_a_config_may_leave_out_what_its_family_has_by_default() -> None:
    assert shape_from_config({"model_type": "llama", "vocab_size": 32000}).params == 6_738_415_616
    assert shape_from_config({"model_type": "mistral"}).num_kv_heads == 8
    assert shape_from_config({"model_type": "bloom", "n_embed": 4096, "n_layer": 30, "n_head": 32}).hidden == 4096


def test_chatglm_of_the_first_generation_has_the_layers_of_gpt_neox() -> None:
    config = {"model_type": "chatglm", "architectures": ["ChatGLMModel"], "hidden_size": 4096, "num_layers": 28,
              "inner_hidden_size": 16384, "num_attention_heads": 32, "vocab_size": 130528,
              "position_encoding_2d": True}  # fmt: skip
    # 12 h^2 of matrices, 13 h of biases and norms a layer, the last norm, and one table: 6,173,286,400 on its page.
    assert shape_from_config(config).params == 28 * (12 * 4096**2 + 13 * 4096) + 2 * 4096 + 130528 * 4096


def test_mpt_of_its_own_code_has_positions_and_biases_where_it_says_so() -> None:
    config = {"model_type": "mpt", "d_model": 768, "n_heads": 12, "n_layers": 12, "vocab_size": 50368,
              "max_seq_len": 2048, "learned_pos_emb": True, "no_bias": False,
              "attn_config": {"alibi": False}}  # fmt: skip
    plain = shape_from_config(config | {"architectures": ["MptForCausalLM"]}).params
    own = shape_from_config(config | {"architectures": ["MPTForCausalLM"]}).params
    # Biases of four products (3 h, h, 4 h, h), and of two norms a layer and the last.
    assert own - plain == 2048 * 768 + 12 * (9 + 2) * 768 + 768
    turned = {"attn_config": {"alibi": True}, "no_bias": True, "architectures": ["MPTForCausalLM"]}
    assert shape_from_config(config | turned).params == plain


def test_another_kind_of_file_under_a_familys_name_is_refused() -> None:
    with pytest.raises(DescriptionError, match='the config says "dim" where nanochat has "hidden_size"'):
        shape_from_config({"model_type": "nanochat", "dim": 896, "n_layers": 16, "n_heads": 14, "vocab_size": 151650})


def test_layers_that_a_search_shaped_are_read_as_their_mean() -> None:
    blocks = [
        {"attention": {"n_heads_in_group": 8}, "ffn": {"ffn_mult": 5.25}},
        {"attention": {"no_op": True}, "ffn": {"ffn_mult": 2.625}},
        {"attention": {"replace_with_linear": True}, "ffn": {"no_op": True}},
    ]
    shape = shape_from_config(
        {"model_type": "nemotron-nas", "hidden_size": 8192, "num_attention_heads": 64, "num_hidden_layers": 3,
         "vocab_size": 128256, "block_configs": blocks, "tie_word_embeddings": False}
    )  # fmt: skip
    attention = 8192 * 128 * (64 + 8 + 8) + 8192 * 8192
    widths = 28672 + 14336
    expected = attention + 3 * 8192 * widths + 8192**2 + 2 * 128256 * 8192
    assert shape.params == pytest.approx(expected, rel=1e-4)
    assert (shape.num_attention_layers, shape.num_ffn_layers, shape.kv_heads) == (1, 2, 8)
    with pytest.raises(DescriptionError, match='"block_configs" lists what each layer has'):
        shape_from_config(COMMAND_R | {"model_type": "deci"})


def test_an_unknown_tower_is_refused() -> None:
    llava = next(model for model in MODELS if model["name"].startswith("llava"))["config"]
    with pytest.raises(DescriptionError, match=r"llava has an image tower \(resnet\) that syncline does not"):
        shape_from_config(llava | {"vision_config": {"model_type": "resnet"}})


@pytest.mark.parametrize("family", ["deepseek_vl", "deepseek_vl_hybrid", "video_llava", "xgenmm"])
def test_a_tower_joined_in_another_way_is_refused(family: str) -> None:
    llava = next(model for model in MODELS if model["name"].startswith("llava"))["config"]
    with pytest.raises(DescriptionError, match=f"{family} joins its image tower"):
        shape_from_config(llava | {"model_type": family})
    with pytest.raises(DescriptionError, match="has an audio tower"):
        shape_from_config(llava | {"audio_config": {"hidden_size": 1024}})


def test_hybrids_keep_little_for_a_long_context() -> None:
    jamba = next(model for model in MODELS if model["name"] == "ai21labs/Jamba-v0.1")["config"]
    shape = shape_from_config(jamba)
    assert (shape.num_attention_layers, shape.mixers[0].layers, shape.moe_layers) == (4, 28, 16)
    assert shape.active_params / 1e9 == pytest.approx(12.1, rel=0.02)
    assert cache_bytes(shape, 1, 1) == 2 * 4 * 8 * 256  # four layers of keys and values
    assert state_bytes(shape, 1) == 2 * 28 * 8192 * (16 + 4)


def test_experts_of_a_latent_size_are_smaller_and_their_exchange_too() -> None:
    shape = shape_from_config(next(m for m in MODELS if "Nemotron-3-Super" in m["name"])["config"])
    assert shape.moe is not None
    assert (shape.moe.latent, shape.expert_hidden, shape.hidden) == (1024, 1024, 4096)
    assert shape.one_expert_params == 2 * 1024 * 2688  # up and down, without a gate
    assert shape.active_params / 1e9 == pytest.approx(12.7, rel=0.02)


def _with_tower(family: str, tower: dict[str, object], **more: object) -> int:
    text = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 2, "num_attention_heads": 32,
            "intermediate_size": 11008, "vocab_size": 32000}  # fmt: skip
    shape = shape_from_config({"model_type": family, "text_config": text, "vision_config": tower, **more})
    return shape.towers[0].params


def test_image_towers_of_mistral_internvl_and_smolvlm() -> None:
    """Counts of transformers 5.22.2's own modules, tower and what joins it."""
    pixtral: dict[str, object] = {"model_type": "pixtral", "hidden_size": 1024, "intermediate_size": 4096}
    assert _with_tower("llava", pixtral) == 424_469_504
    assert _with_tower("mistral3", pixtral) == 424_469_504 - 2 * 4096 + 1024 + 4 * 1024 * 1024  # no biases, a merger
    images: dict[str, object] = {"image_size": [448, 448], "patch_size": [14, 14]}
    assert _with_tower("internvl", {"model_type": "internvl_vision"} | images) == 337_509_376
    assert _with_tower("smolvlm", {"model_type": "smolvlm_vision", "patch_size": 32}) == 171_270_144


def test_helium_whose_heads_do_not_fill_its_hidden_size_is_refused() -> None:
    with pytest.raises(DescriptionError, match=r"20 x 256 is not 2560"):
        shape_from_config({"model_type": "helium", "head_dim": 256})
    with pytest.raises(DescriptionError, match=r"deepseek_v4 has several residual streams"):
        shape_from_config({"model_type": "deepseek_v4"})


def test_what_embeds_or_rewards_has_no_output_layer() -> None:
    mistral = {"model_type": "mistral", "sliding_window": 4096}
    whole = shape_from_config(mistral | {"architectures": ["MistralForCausalLM"]}).params
    for name in ("MistralModel", "MistralForSequenceClassification"):  # e5-mistral-7b: 7.11 B of 7.24
        assert whole - shape_from_config(mistral | {"architectures": [name]}).params == 32000 * 4096
    assert shape_from_config(GPT2 | {"architectures": ["GPT2LMHeadModel"]}).params == 124_439_808


def test_letters_say_which_layers_of_exaone_slide() -> None:
    given = config("exaone4", 64, 5120, 40, 102400, num_key_value_heads=8, sliding_window=4096)
    assert shape_from_config(given | {"sliding_window_pattern": "LLLG"}).window_share == 0.75
