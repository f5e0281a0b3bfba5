"""DeepSpeed ZeRO: the stage comes from `--stage`, as in a configuration file."""

import argparse

import deepspeed
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--stage", type=int, default=1)
    parser.add_argument("--local_rank", type=int, default=0)
    args = parser.parse_args()
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 1,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}},
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": args.stage, "overlap_comm": True},
        "gradient_clipping": 1.0,
    }
    model = nn.Sequential(*(Block(2048) for _ in range(8)), nn.Linear(2048, 1000))
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    for _ in range(100):
        x = torch.randn(4, 1024, 2048, device=engine.device, dtype=torch.bfloat16)
        loss = engine(x).float().square().mean()
        engine.backward(loss)
        engine.step()


if __name__ == "__main__":
    main()
