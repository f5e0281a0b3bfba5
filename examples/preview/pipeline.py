"""Four pipeline stages with torch.distributed.pipelining (1F1B), data parallel beside them."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B

SCHEDULES = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe, "interleaved": ScheduleInterleaved1F1B}


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--stages", type=int, default=4)
    parser.add_argument("--schedule", choices=SCHEDULES, default="1f1b")
    parser.add_argument("--microbatches", type=int, default=8)
    args = parser.parse_args()
    width, layers, batch, length = 4096, 16, 16, 1024
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = torch.device("cuda", torch.cuda.current_device())
    mesh = init_device_mesh("cuda", (args.stages, dist.get_world_size() // args.stages), mesh_dim_names=("pp", "dp"))
    rank = mesh["pp"].get_local_rank()
    chunks = 2 if args.schedule == "interleaved" else 1
    stages = []
    for chunk in range(chunks):
        number = chunk * args.stages + rank
        model = nn.Sequential(*(Block(width) for _ in range(layers // args.stages // chunks))).to(device).bfloat16()
        if mesh["dp"].size() > 1:
            model = fully_shard(model, mesh=mesh["dp"])
        stages.append(PipelineStage(model, number, chunks * args.stages, device, group=mesh.get_group("pp")))
    given = stages if chunks > 1 else stages[0]
    schedule = SCHEDULES[args.schedule](given, args.microbatches, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.AdamW([p for stage in stages for p in stage.submod.parameters()])
    for _ in range(100):
        x = torch.randn(batch, length, width, device=device, dtype=torch.bfloat16)
        if rank == 0:
            schedule.step(x)
        elif rank == args.stages - 1:
            losses: list[torch.Tensor] = []
            schedule.step(target=x, losses=losses)
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
