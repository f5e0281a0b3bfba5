"""A GPT on four ranks over shaped links, at 1, 10 and 25 Gb/s: plain DDP beside codecs, with and without early updates.

    PYTHONPATH=src python tools/gpu/shaped_links.py --device cuda --out DIR          four ranks share the first GPU
    PYTHONPATH=src python tools/gpu/shaped_links.py --device cpu --layers 4 --width 256

Each rank is a host of a lab (namespaces and links made with pyroute2; no `ip` or `tc` is needed). Methods run in turn
in one process a rank, plain DDP first and last, so that its two rows are an A/A control.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
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
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rates", default=",".join(map(str, RATES_Gbps)))
    parser.add_argument("--methods", default=",".join(METHODS))
    chosen = parser.parse_args()
    task = {key: value for key, value in vars(chosen).items() if key not in ("out", "rates")}
    rows: list[dict[str, Any]] = []
    for rate in chosen.rates.split(","):
        found = _at(float(rate), task)
        plain_s = statistics.fmean(row["median_s"] for row in found if row["method"] == "ddp")
        rows += [{"rate_Gbps": float(rate), **row, "times_ddp": round(plain_s / row["median_s"], 2)} for row in found]
        for row in rows[-len(found) :]:
            print(json.dumps(row), flush=True)
    chosen.out.mkdir(parents=True, exist_ok=True)
    report = {"command": " ".join(["python", *sys.argv]), "ranks": 4, "cores": os.cpu_count(), **task, "rows": rows}
    (chosen.out / "shaped_links.json").write_text(json.dumps(report, indent=1) + "\n")
    return 0


def _at(rate_Gbps: float, task: dict[str, Any]) -> list[dict[str, Any]]:
    from syncline.fabric import load
    from syncline.lab import Lab

    kind = {1.0: "1GbE", 10.0: "10GbE", 25.0: "25GbE"}.get(rate_Gbps, f"{rate_Gbps:g}Gbps")
    text = f"hosts: 4\nhost: {{gpu: H200, gpus: 1, nics: 1, link: {kind}}}\nnetwork: fat-tree {kind}\n"
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        fabric = load(Path(file.name))
    lines: list[str] = []
    with Lab(fabric) as lab:
        command = [sys.executable, str(Path(__file__).resolve()), "--rank", json.dumps(task)]
        ended = lab.run(command, timeout_s=540.0, on_line=lambda process, stream, line: lines.append(line))
    found = [json.loads(line) for line in lines if line.startswith('{"method"')]
    if not found:
        raise RuntimeError(f"the ranks printed no row: {ended}\n" + "\n".join(lines[-20:]))
    return found


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
    warm_up = 24 if codec == "auto" else 3
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
