"""Published torchtitan figures previewed from torchtitan's own configuration, beside `step`: JSON lines.

    pip install --target extra --no-deps torchtitan==0.3.0 tyro ...     # with torch 2.13 from this environment
    PYTHONPATH=extra python benchmarks/preview_published.py [NAME...]

The trainer of today (flex attention, chunked loss) is run where the figures are of December 2024 (fused attention of
that year, loss in one piece); batch, length, recomputation, precision and ranks are those of the row. No GPU.
"""

from __future__ import annotations

import json
import os
import string
import sys
import tempfile
from pathlib import Path
from typing import Any

import syncline
from syncline.preview import price
from syncline.preview.execute import execute
from syncline.preview.graph import step_graph
from syncline.sim.step import step_cost
from syncline.sim.step.constants import default_constants
from syncline.sim.step.machine import machine_from_fabric
from syncline.validate.training import validate_training

CLUSTER = "hosts: 16\nhost: {gpu: H100-SXM5-96GB, gpus: 8, nics: 8}\nnetwork: fat-tree NDR\n"
OWN = (
    "--module llama3 --config llama3_8b --hf_assets_path ./tests/assets/tokenizer --dataloader.dataset c4_test "
    "--parallelism.spmd_backend partial_dtensor --training.disable_cuda_graphs --metrics.no-enable_tensorboard "
    "--profiler.no-enable_profiling --training.local_batch_size 2"
)
ROWS = {
    f"8B on {ranks}, {'compiled' if compiled else 'eager'}": (ranks, compiled)
    for ranks in (8, 128)
    for compiled in (False, True)
}


def assets(folder: Path) -> None:
    """Write a tokenizer of letters and a text, which torchtitan reads; the shapes of a step do not depend on them."""
    tokenizer, text = folder / "tests/assets/tokenizer", folder / "tests/assets/c4_test"
    tokenizer.mkdir(parents=True)
    text.mkdir()
    words = [*string.ascii_lowercase, "<|begin_of_text|>", "<|end_of_text|>", "<unk>"]
    model = {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(words)}, "unk_token": "<unk>"}
    blank = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder"))
    whole: dict[str, Any] = {
        "version": "1.0",
        **blank,
        "added_tokens": [],
        "pre_tokenizer": {"type": "Whitespace"},
        "model": model,
    }
    (tokenizer / "tokenizer.json").write_text(json.dumps(whole))
    marks = {"bos_token": words[26], "eos_token": words[27], "tokenizer_class": "PreTrainedTokenizerFast"}
    (tokenizer / "tokenizer_config.json").write_text(json.dumps(marks))
    line = json.dumps({"text": " ".join("abcdefghij" * 1000)})
    (text / "data.json").write_text(f"{line}\n" * 60)
    (folder / "cluster.yaml").write_text(CLUSTER)


def stated(ranks: int, compiled: bool) -> tuple[float, float]:
    """Return what was published of a row, and what `step` says of it, in seconds a step."""
    for run in validate_training().runs:
        job = run.described.job
        mine = "torchtitan" in run.source and job.model.name == "llama3-8b" and job.precision == "bf16"
        if mine and run.described.num_gpus == ranks and job.compiled is compiled and run.case is not None:
            return run.measured_s, float(step_cost(run.case, default_constants()).total)
    raise LookupError(f"no published row of 8B on {ranks} GPUs, compiled {compiled}")


def of_its_time(seen: Any) -> float:
    """Return the step with FlashAttention 2, which torch took on Hopper in December 2024."""
    machine, kept, price.CUDNN_ATTENTION = machine_from_fabric(seen.fabric), price.CUDNN_ATTENTION, ()
    try:
        return execute(step_graph(seen.captures, price.Pricer(machine)), seen.fabric, machine).step_time_s
    finally:
        price.CUDNN_ATTENTION = kept


def main() -> None:
    """Print a row for each figure."""
    with tempfile.TemporaryDirectory() as scratch:
        assets(Path(scratch))
        os.chdir(scratch)
        for name in [each for each in ROWS if not sys.argv[1:] or any(word in each for word in sys.argv[1:])]:
            ranks, compiled = ROWS[name]
            more = [*OWN.split(), *(["--compile.enable"] if compiled else [])]
            command = [
                "torchrun",
                "--nnodes",
                str(ranks // 8),
                "--nproc-per-node",
                "8",
                "-m",
                "torchtitan.train",
                *more,
            ]
            seen = syncline.preview("cluster.yaml", command, what_if=[], timeout="40min")
            measured, step = stated(ranks, compiled)
            found, then = seen.step_time_s, of_its_time(seen)
            row = {
                "row": name, "measured_s": measured, "preview_s": found, "preview_fa2_s": then, "step_s": step,
                "preview_percent": 100 * (found / measured - 1), "preview_fa2_percent": 100 * (then / measured - 1),
                "step_percent": 100 * (step / measured - 1),
                "kernels_s": seen.graph.prices, "peak_GiB": seen.memory.peak_bytes / 2**30,
            }  # fmt: skip
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
