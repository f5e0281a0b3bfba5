"""Lightning: a module and its Trainer; `--strategy fsdp` shards, ddp is the default."""

import argparse

import lightning
import torch
from torch import nn


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 6)
        self.head = nn.Linear(1024, 100)

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        x, y = batch
        loss = nn.functional.cross_entropy(self.head(self.body(x).mean(1)), y)
        self.log("loss", loss, prog_bar=True, sync_dist=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-4)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--strategy", default="ddp")
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--nodes", type=int, default=1)
    args = parser.parse_args()
    data = torch.utils.data.TensorDataset(torch.randn(2048, 256, 1024), torch.randint(0, 100, (2048,)))
    loader = torch.utils.data.DataLoader(data, batch_size=16, num_workers=4, shuffle=True)
    trainer = lightning.Trainer(
        accelerator="gpu",
        devices=args.devices,
        num_nodes=args.nodes,
        strategy=args.strategy,
        precision="bf16-mixed",
        max_steps=100,
        gradient_clip_val=None if args.strategy == "fsdp" else 1.0,
        enable_checkpointing=False,
        logger=False,
    )
    trainer.fit(Classifier(), loader)


if __name__ == "__main__":
    main()
