"""Train with Lightning, gradients synchronised, on two processes: python lightning_ddp.py"""

from __future__ import annotations

from typing import Any

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch.nn.parallel import DistributedDataParallel

import syncline.torch


class Synchronise(lightning.Callback):
    """Turns syncline on when the strategy has wrapped the model, and off at the end."""

    handle: syncline.torch.Synchronizer | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        model = trainer.strategy.model
        if isinstance(model, DistributedDataParallel):
            self.handle = syncline.torch.synchronize(model)  # on

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if self.handle is not None:
            if trainer.is_global_zero:
                print(self.handle.summary())
            self.handle.close()  # off


class Sum(lightning.LightningModule):
    """Learns to add four numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))

    def training_step(self, x: torch.Tensor, index: int) -> torch.Tensor:
        error: torch.Tensor = self.layers(x) - x[:, :4].sum(1, keepdim=True)
        return error.square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def main() -> None:
    lightning.seed_everything(0, verbose=False)
    data: Any = torch.randn(256, 64)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, strategy=DDPStrategy(process_group_backend="gloo"), max_steps=6, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, callbacks=[Synchronise()],
    )  # fmt: skip
    trainer.fit(Sum(), torch.utils.data.DataLoader(data, batch_size=16))


if __name__ == "__main__":
    main()
