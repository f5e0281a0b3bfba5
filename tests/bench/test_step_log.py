"""Step lines as six frameworks write them; the samples are excerpts of public logs, named beside each."""

from __future__ import annotations

import pytest

from syncline.bench.step_log import read_step_log
from syncline.errors import DescriptionError
from syncline.workload.job import Job
from syncline.workload.read_job import load_job

GPUS = 8


def job(batch: int, sequence: int = 8192) -> Job:
    return load_job({"model": "llama3-8b", "batch": {"global": batch, "sequence": sequence}})


def numbered(line: str, values: list[str]) -> str:
    return "\n".join(line.format(step=i + 1, value=v) for i, v in enumerate(values))


# FlagOpen/OpenSeek README (2025-05), Megatron-LM
MEGATRON = (
    "[default0]: [2025-05-27 15:23:07] iteration {step:8d}/   24000 | consumed samples:          1024 | elapsed time "
    "per iteration (ms): {value} | throughput per GPU (TFLOP/s/GPU): 40.4 | learning rate: 1.500000E-06 | global batch "
    "size:  1024 | lm loss: 1.192634E+01 | loss scale: 1.0 | grad norm: 5.960 |"
)
# NeMo 2 on eight B200
NEMO = (
    "Training epoch 0, iteration {step}/99 | lr: 6.897e-06 | global_batch_size: 128 | global_step: 45 | "
    "max_memory_reserved: 127785762816 | reduced_train_loss: 11.96 | train_step_timing in s: {value} | "
    "TFLOPS_per_GPU: 1.249e+03 | consumed_samples: 5888"
)
# NVIDIA/dgxc-benchmarking llama3.1 (NeMo 1, a progress bar)
NEMO_1 = (
    "Epoch 0: : 100%|██████████| {step}/100 [20:15<00:00, reduced_train_loss=6.370, global_step=99.00, "
    "consumed_samples=12800.0, train_step_timing in s={value}]"
)
# PyTorch's float8 page (torchtitan on eight H100, Llama 3 8B)
TITAN = (
    "[rank0]:[titan] 2025-06-04 08:52:10,224 - root - INFO - \x1b[31mstep: {step}  \x1b[32mloss:  8.9196  "
    "\x1b[33mmemory: 30.99GiB(32.62%)  \x1b[34mtps: {value}  \x1b[36mtflops: 406.65  \x1b[35mmfu: 41.12%\x1b[39m"
)
# argonne-lcf/Megatron-DeepSpeed
DEEPSPEED = (
    "[2024-04-21 02:45:40,722] [INFO] [timer.py:260:stop] epoch=0/micro_step=3/global_step={step}, "
    "RunningAvgSamplesPerSec=74.68, CurrSamplesPerSec={value}, MemAllocated=4.75GB, MaxMemAllocated=15.59GB"
)
# AI-Hypercomputer/maxtext, Understand Logs and Metrics
MAXTEXT = (
    "completed step: {step}, seconds: {value}, TFLOP/s/device: 134.884, Tokens/s/device: 8670.207, "
    "total_weights: 196608, loss: 11.110"
)


@pytest.mark.parametrize(
    ("line", "values", "batch", "step_s", "framework"),
    [
        (MEGATRON, ["271607.0", "4700.0", *["4600.0"] * 18, "19000.0", "4610.0"], 1024, 4.6, "Megatron"),
        (MEGATRON, ["9000.0/9000.0", *["4600.0/4605.2"] * 6], 1024, 4.6, "Megatron"),
        (NEMO, ["9.4", "6.1", "6.08", "6.061", "6.08"], 128, 6.08, "NeMo"),
        (NEMO_1, ["15.1", "11.2", "11.2", "11.20", "11.20"], 128, 11.2, "NeMo"),
        (TITAN, ["375", "7,034", "7,022", "7,022", "7,014"], 8, 8192 * 8 / (7022 * GPUS), "torchtitan"),
        (DEEPSPEED, ["20.1", "74.0", "74.685", "74.685", "74.685"], 768, 768 / 74.685, "DeepSpeed"),
        (MAXTEXT, ["44.923", "0.319", "5.658", "5.402", "5.669", "5.668", "5.66"], 64, 5.66, "MaxText"),
    ],
)
def test_the_median_after_the_warm_up(
    line: str, values: list[str], batch: int, step_s: float, framework: str
) -> None:  # fmt: skip
    found = read_step_log(numbered(line, values), "train.log", job(batch), GPUS)
    assert found.framework == framework
    assert found.step_s == pytest.approx(step_s, rel=2e-3)
    assert found.num_found == len(values)


def test_deepspeed_pipelines_print_the_time_itself() -> None:
    text = numbered("steps: {step} loss: 5.55 lm loss: 5.51 iter time (s): {value} samples/sec: 136.706", ["0.936"] * 6)
    assert read_step_log(text, "log", job(128), GPUS).step_s == pytest.approx(0.936)


@pytest.mark.parametrize(
    ("text", "step_s"),
    [
        ("{'train_runtime': 1891.92, 'train_samples_per_second': 5.816, 'train_steps_per_second': 0.365}", 1 / 0.365),
        ("{'train_runtime': '101.6', 'train_steps_per_second': '0.788', 'train_loss': '6.252'}", 1 / 0.788),
        (" 50%|█████     | 15/30 [01:40<01:40,  6.80s/it]\r100%|██████████| 30/30 [03:24<00:00,  6.71s/it]", 6.71),
        ("100%|██████████| 567/620 [08:21<00:35,  1.49it/s]", 1 / 1.49),
    ],
)
def test_a_trainer_prints_means(text: str, step_s: float) -> None:
    assert read_step_log(text, "log", job(64), GPUS).step_s == pytest.approx(step_s)


@pytest.mark.parametrize(
    ("text", "batch", "message"),
    [
        ("loss 3.2\nloss 3.1\n", 64, "no step line was found"),
        (numbered(MAXTEXT, ["44.9", "0.3", "5.6", "5.4"]), 64, "2 come after the warm-up; 3 are needed"),
        (numbered(NEMO, ["6.1"] * 8), 256, "the log has a global batch of 128, the job 256"),
        (numbered(MAXTEXT, ["9", "9", *["5", "9"] * 8]), 64, "not steady: half of them lie between 5 and 9 s"),
    ],
)
def test_what_cannot_be_read_says_why(text: str, batch: int, message: str) -> None:
    with pytest.raises(DescriptionError, match=message) as error:
        read_step_log(text, "train.log", job(batch), GPUS)
    assert "train.log" in str(error.value)
    assert "--measured" in error.value.hint or "global" in error.value.hint
