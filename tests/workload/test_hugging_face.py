"""config.json files of several families, and files that are not one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from syncline.errors import DescriptionError
from syncline.workload.hugging_face import read_config, shape_from_config
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
        shape_from_config({"model_type": "resnet", "hidden_size": 4, "num_attention_heads": 1, "vocab_size": 2})
    path = tmp_path / "config.json"
    path.write_text("{broken")
    with pytest.raises(DescriptionError, match="not JSON"):
        read_config(path)
    path.write_text('{"hidden_size": "wide", "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 8}')
    with pytest.raises(DescriptionError, match="hidden"):
        read_config(path)
