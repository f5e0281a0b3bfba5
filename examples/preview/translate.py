"""An encoder and a decoder of torch's own layers (the large Transformer of 2017) in bfloat16 under FSDP2."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

VOCAB, WIDE, HEADS, LAYERS, BATCH, LENGTH = 32000, 1024, 16, 6, 32, 256


class Translator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(VOCAB, WIDE), nn.Embedding(LENGTH, WIDE)
        self.layers = nn.Transformer(WIDE, HEADS, LAYERS, LAYERS, 4 * WIDE, dropout=0.1, batch_first=True)
        self.head = nn.Linear(WIDE, VOCAB)

    def embedded(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.words(tokens) * WIDE**0.5 + self.places(torch.arange(tokens.shape[1], device=tokens.device))

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH, device=source.device, dtype=torch.bfloat16)
        seen = self.layers(self.embedded(source), self.embedded(target), tgt_mask=mask, tgt_is_causal=True)
        return self.head(seen)


def main() -> None:
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    model = Translator().cuda()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in (*model.layers.encoder.layers, *model.layers.decoder.layers):
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, betas=(0.9, 0.98))
    for _ in range(1000):
        source = torch.randint(0, VOCAB, (BATCH, LENGTH), device="cuda")
        target = torch.randint(0, VOCAB, (BATCH, LENGTH + 1), device="cuda")
        logits = model(source, target[:, :-1])
        wanted = target[:, 1:].reshape(-1)
        loss = nn.functional.cross_entropy(logits.float().view(-1, VOCAB), wanted, label_smoothing=0.1)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
