"""How a checkpoint keeps its weights, by the files that checkpoints come with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from syncline.workload.family.config import read_config
from syncline.workload.stored import Stored, stored_of

GROUP = {"weights": {"num_bits": 4, "type": "int"}, "input_activations": None}
FLOAT = {"weights": {"num_bits": 4, "type": "float"}, "input_activations": {"num_bits": 4, "type": "float"}}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, Stored(weights="fp8")),
        ({"quant_method": "gptq", "bits": 4}, Stored(weights="int4", inputs=False)),
        ({"quant_method": "awq", "bits": 4}, Stored(weights="int4", inputs=False)),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, Stored(weights="int8", inputs=False)),
        ({"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}, Stored(weights="fp4")),
        ({"quant_method": "modelopt", "config_groups": {"a": FLOAT}, "ignore": ["model.layers.0.self_attn*"]},
         Stored(weights="fp4", experts_only=True)),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": GROUP}, "ignore": ["re:.*self_attn.*"]},
         Stored(weights="int4", experts_only=True, inputs=False)),
        ({"quant_algo": "MIXED_PRECISION"}, None),
        ({"quant_method": "something new"}, None),
    ],
)  # fmt: skip
def test_each_file_says_it_its_own_way(said: dict[str, Any], expected: Stored | None) -> None:
    assert stored_of({"quantization_config": said}) == expected


def test_nvidia_says_it_in_a_file_of_its_own(tmp_path: Path) -> None:
    config = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
              "vocab_size": 100, "intermediate_size": 128}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert read_config(tmp_path / "config.json").stored is None
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "FP8"}}))
    assert read_config(tmp_path / "config.json").stored == Stored(weights="fp8")
