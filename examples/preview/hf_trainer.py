"""Hugging Face Trainer on a small Llama made from its configuration: `--fsdp` shards it, gradients accumulate twice."""

import sys
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


class Tokens(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.randint(0, 32000, (1024,))
        return {"input_ids": tokens, "labels": tokens}


def main() -> None:
    config = LlamaConfig(
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=8,
        num_attention_heads=16,
        num_key_value_heads=4,
        vocab_size=32000,
    )
    sharded: dict[str, Any] = {
        "fsdp": "full_shard auto_wrap",
        "fsdp_config": {"transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]},
    }
    arguments = TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        bf16=True,
        max_steps=100,
        logging_steps=10,
        save_strategy="no",
        dataloader_num_workers=4,
        report_to="none",
        gradient_checkpointing="--checkpoint" in sys.argv,
        **(sharded if "--fsdp" in sys.argv else {}),
    )
    Trainer(model=LlamaForCausalLM(config), args=arguments, train_dataset=Tokens()).train()


if __name__ == "__main__":
    main()
