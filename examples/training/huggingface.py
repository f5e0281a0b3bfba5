"""Fine-tune with the Hugging Face Trainer, gradients synchronised: torchrun --nproc-per-node 2 huggingface.py"""

from __future__ import annotations

import tempfile
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

import syncline.torch


class Synchronise(TrainerCallback):
    """Turns syncline on when the Trainer has wrapped the model, and off at the end."""

    trainer: Trainer
    handle: syncline.torch.Synchronizer | None = None

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        model = self.trainer.model_wrapped
        if self.handle is None and isinstance(model, DistributedDataParallel):
            self.handle = syncline.torch.synchronize(model)  # on

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.handle is not None:
            if state.is_world_process_zero:
                print(self.handle.summary())
            self.handle.close()  # off


def main() -> None:
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2)
    tokens = torch.randint(64, (64, 16), generator=torch.Generator().manual_seed(1))
    data = [{"input_ids": row, "labels": row} for row in tokens]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, max_steps=6, per_device_train_batch_size=4, use_cpu=True, ddp_backend="gloo",
            report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True,
        )  # fmt: skip
        callback, make_model = Synchronise(), cast("Any", GPT2LMHeadModel)
        callback.trainer = Trainer(make_model(config), arguments, train_dataset=data, callbacks=[callback])
        callback.trainer.train()
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
