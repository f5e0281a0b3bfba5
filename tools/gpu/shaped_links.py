"""A GPT on four ranks over shaped links, at 1, 10 and 25 Gb/s: plain DDP beside codecs, with and without early updates.

    PYTHONPATH=src python tools/gpu/shaped_links.py --device cuda --out DIR          four ranks share the first GPU
    PYTHONPATH=src python tools/gpu/shaped_links.py --device cpu --layers 4 --width 256

Each rank is a host of a lab (namespaces and links made with pyroute2; no `ip` or `tc` is needed). Methods run in turn
in one process a rank, plain DDP first and last, so that its two rows are an A/A control. A row is printed and written
to shaped_links.jsonl when its method is done. `--layers 2,4,8` and `--width` may differ by rate.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RATES_Gbps = (1, 10, 25)
METHODS = ("ddp", "auto", "plain", "fp32", "bf16", "int8", "int8 early", "int4", "sign", "ddp")


def main() -> int:
    """Measure every rate in a lab of its own, and write a JSON file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--layers", default="24")
    parser.add_argument("--width", default="1024")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rates", default=",".join(map(str, RATES_Gbps)))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--limit", type=float, default=540.0, help="seconds that one rate may take")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    rates = [float(rate) for rate in chosen.rates.split(",")]
    layers, widths = (_each(text, len(rates)) for text in (chosen.layers, chosen.width))
    with (chosen.out / "shaped_links.jsonl").open("a") as file:
        for rate, num_layers, width in zip(rates, layers, widths, strict=True):
            task = {"device": chosen.device, "layers": num_layers, "width": width, "batch": chosen.batch,
                    "steps": chosen.steps, "methods": chosen.methods}  # fmt: skip
            head: dict[str, Any] = {"rate_Gbps": rate, "ranks": 4, "cores": os.cpu_count(), **task}
            _at(rate, task, chosen.limit, partial(_write, file, head))
    return 0


def _each(text: str, count: int) -> list[int]:
    """Return one number for every rate."""
    numbers = [int(part) for part in text.split(",")]
    return numbers * count if len(numbers) == 1 else numbers


def _write(file: Any, head: dict[str, Any], row: dict[str, Any]) -> None:
    line = json.dumps({**head, **row})
    print(line, flush=True)
    file.write(line + "\n")
    file.flush()


def _at(rate_Gbps: float, task: dict[str, Any], limit_s: float, write: Callable[[dict[str, Any]], None]) -> None:
    """Run every method at a rate; `write` gets each row, with how many times faster than the first DDP it is."""
    from syncline.fabric import load
    from syncline.lab import Lab

    kind = {1.0: "1GbE", 10.0: "10GbE", 25.0: "25GbE"}.get(rate_Gbps, f"{rate_Gbps:g}Gbps")
    text = f"hosts: 4\nhost: {{gpu: H200, gpus: 1, nics: 1, link: {kind}}}\nnetwork: fat-tree {kind}\n"
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as described:
        described.write(text)
        described.flush()
        fabric = load(Path(described.name))
    lines: list[str] = []
    plain_s: list[float] = []

    def hear(_process: Any, _stream: Any, line: str) -> None:
        lines.append(line)
        if line.startswith('{"method"'):
            row = json.loads(line)
            if row["method"] == "ddp":
                plain_s.append(row["median_s"])
            write({**row, "times_ddp": round(plain_s[0] / row["median_s"], 2) if plain_s else None})

    with Lab(fabric) as lab:
        command = [sys.executable, str(Path(__file__).resolve()), "--rank", json.dumps(task)]
        try:
            ended = lab.run(command, timeout_s=limit_s, on_line=hear)
        except TimeoutError as error:
            write({"error": f"the limit of {limit_s:g} s: {error}"})
            return
    if not plain_s:
        raise RuntimeError(f"the ranks printed no row: {ended}\n" + "\n".join(lines[-20:]))


def rank(task: dict[str, Any]) -> None:
    """Train under each method in turn; rank 0 prints a row for each."""
    import torch
    import torch.distributed as dist

    sys.path.insert(0, str(ROOT / "benchmarks"))
    torch.set_num_threads(1)
    device = torch.device(task["device"])
    dist.init_process_group("gloo")
    for method in task["methods"].split(","):
        row = _train(method, task, device)
        rows: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(rows, row)
        if dist.get_rank() == 0:
            slowest = {key: max(one[key] for one in rows) for key in ("median_s", "cpu_s")}
            print(json.dumps({"method": method, **slowest, "why": row["why"], "loss": row["loss"]}), flush=True)
    dist.destroy_process_group()


def _train(method: str, task: dict[str, Any], device: Any) -> dict[str, Any]:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import syncline.torch

    torch.manual_seed(0)
    width, num_layers, length = task["width"], task["layers"], 256
    layer = torch.nn.TransformerEncoderLayer(width, width // 64, 4 * width, 0.0, batch_first=True, norm_first=True)
    model: Any = torch.nn.Sequential(torch.nn.TransformerEncoder(layer, num_layers), torch.nn.Linear(width, width))
    model = DistributedDataParallel(model.to(device), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")
    codec, _, early = method.partition(" ")
    handle: Any = None
    if codec != "ddp":
        options: dict[str, Any] = {"optimizer": optimizer} if early else {}
        handle = syncline.torch.synchronize(model, codec=codec, check_every=0, warmup=0, **options)
    data = torch.Generator().manual_seed(dist.get_rank())
    times, cpu_s, loss = [], 0.0, torch.zeros(())
    warm_up = 40 if codec == "auto" else 3
    for step in range(warm_up + task["steps"]):
        if step == warm_up:
            dist.barrier()
            cpu_s = time.process_time()
        began = time.perf_counter()
        x = torch.randn(task["batch"], length, width, generator=data).to(device)
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = (model(x) - x.roll(1, 1)).square().mean()
        loss.backward()
        optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        if step >= warm_up:
            times.append(time.perf_counter() - began)
    cpu_s = (time.process_time() - cpu_s) / task["steps"]
    why = "" if handle is None else handle.why()
    if handle is not None:
        handle.close()
    return {"median_s": statistics.median(times), "cpu_s": cpu_s, "why": why, "loss": round(float(loss), 5)}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        rank(json.loads(sys.argv[2]))
    else:
        sys.exit(main())
