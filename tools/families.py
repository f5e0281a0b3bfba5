"""Write `workload/data/families.yaml` anew: defaults of `transformers`' configuration classes, for the families in it.

    python tools/families.py            # where transformers is installed

To add a family, write its name with `{}` and run this; `tests/workload/family/test_config.py` holds what is counted.
"""

from __future__ import annotations

from pathlib import Path

import transformers
import yaml
from transformers import CONFIG_MAPPING

TABLE = Path(__file__).parent.parent / "src" / "syncline" / "workload" / "data" / "families.yaml"
KEYS = """
num_hidden_layers n_layer n_layers num_layers hidden_size n_embd d_model num_attention_heads n_head n_heads num_heads
num_key_value_heads num_kv_heads kv_n_heads head_dim intermediate_size_mlp intermediate_size ffn_dim n_inner
block_ff_dim vocab_size tie_word_embeddings attention_bias use_qkv_bias multi_query new_decoder_architecture bias
max_position_embeddings n_positions sliding_window use_sliding_window sliding_window_pattern kv_lora_rank q_lora_rank
qk_rope_head_dim qk_nope_head_dim v_head_dim n_routed_experts num_local_experts num_experts num_experts_per_tok
num_experts_per_token moe_k moe_num_experts moe_num_shared_experts moe_intermediate_size shared_expert_intermediate_size
moe_shared_expert_intermediate_size shared_intermediate_size n_shared_experts num_shared_experts decoder_sparse_step
moe_layer_freq interleave_moe_layer_step expert_layer_period expert_layer_offset moe_layer_interval
moe_layer_start_index first_k_dense_replace num_dense_layers attn_layer_period attn_layer_offset state_size expand
conv_kernel n_groups ssm_state_size mamba_num_heads mamba_head_dim mamba_d_state mamba_d_conv mamba_expand
mamba_n_heads mamba_d_head mamba_n_groups mamba_d_ssm mamba_rms_norm full_attention_interval linear_conv_kernel_dim
linear_key_head_dim linear_value_head_dim linear_num_key_heads linear_num_value_heads conv_L_cache block_multiple_of
block_ffn_dim_multiplier block_auto_adjust_ff_dim lru_width conv1d_width attention_window_size attention_hidden_size
index_n_heads index_head_dim global_head_dim num_global_key_value_heads attention_k_eq_v num_kv_shared_layers
hidden_size_per_layer_input enable_moe_block moe_layer_end_index
"""
#: Families that transformers has under another name.
SAME = {"kimi_k2": "deepseek_v3", "deepseek_v32": "deepseek_v3", "minimax_text_01": "minimax", "minimax_m1": "minimax"}
#: Defaults of families that transformers does not have, as their own configuration class has them.
OWN: dict[str, dict[str, bool]] = {"minicpm": {"tie_word_embeddings": True}}


def main() -> None:
    """Write the table."""
    lines = [
        f"# From the configuration classes of transformers {transformers.__version__}: tools/families.py.",
        "families:",
    ]
    for family in sorted(yaml.safe_load(TABLE.read_text())["families"], key=str.casefold):
        name = SAME.get(family, family)
        kept = CONFIG_MAPPING[name] if name in CONFIG_MAPPING else None  # noqa: SIM401  (its get() loads nothing)
        found = {key: getattr(kept, key, None) for key in KEYS.split()}
        found |= OWN.get(family, {})
        plain = {key: value for key, value in found.items() if isinstance(value, (bool, int, float)) and value != -1}
        text = ", ".join(f"{key}: {str(value).lower()}" for key, value in plain.items())
        lines.append(f"  {family}: {{{text}}}")
    TABLE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
