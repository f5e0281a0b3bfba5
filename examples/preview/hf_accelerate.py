"""accelerate: the model, the optimizer and the loader are prepared, gradients accumulate over four batches."""

import torch
from accelerate import Accelerator
from torch import nn


def main() -> None:
    accelerator = Accelerator(gradient_accumulation_steps=4, mixed_precision="bf16")
    layer = nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, norm_first=True)
    model = nn.Sequential(nn.Embedding(32000, 1024), nn.TransformerEncoder(layer, 6), nn.Linear(1024, 32000))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)
    data = torch.utils.data.TensorDataset(torch.randint(0, 32000, (4096, 512)))
    loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True, num_workers=2)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    for _ in range(10):
        for (tokens,) in loader:
            with accelerator.accumulate(model):
                logits = model(tokens)
                loss = nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), tokens.view(-1))
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            accelerator.print(loss.item())


if __name__ == "__main__":
    main()
