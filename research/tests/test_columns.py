"""Tables as strangers write them: other names of columns, a column a metric, what is asked for."""

from __future__ import annotations

import pytest
from research.training.columns import column_names
from research.training.layout import is_sharded, zero_of
from research.training.rows import read_rows

from syncline.errors import DescriptionError
from syncline.validation.metrics import SPEEDS, plain_metric

WIDE = """Model,Params,GPU type,# GPUs,Seq len,TP size,GBS,MBS,dtype,ZeRO stage,Network,Framework,tokens/s/GPU,MFU (%)
Llama-3.1-8B,8B,H100,"1,024",8K,1,1024,1,bfloat16,3,8x400G,torchtitan,6900,
Llama-3.1-8B,8B,H100,512,8K,1,1024,1,bfloat16,1,8x400G,NeMo 25.04,6900,41
Llama-3.1-8B,8B,H100,256,8K,1,1024,1,bfloat16,1,8x400G,NeMo 25.04,,
"""


def test_other_names_and_a_column_for_each_metric() -> None:
    first, second, third, empty = read_rows(WIDE, "ours.csv")
    assert (first.whole("gpus"), first.whole("seq"), first.text("source")) == (1024, 8192, "ours")
    assert is_sharded(first) and zero_of(second, 2025) == {"zero": "1"}
    assert (first.text("metric"), first.value) == ("tokens/s/GPU", 6900)
    assert (third.line, third.text("metric"), third.value) == (second.line, "MFU (%)", 41)
    assert first.text("notes") == "framework: torchtitan"
    assert empty.line == 4 and not empty.text("value")  # listed as without a value, not lost


def test_a_batch_that_may_be_two_things_is_asked_for() -> None:
    with pytest.raises(DescriptionError, match="may be the batch of a step or that of a GPU"):
        column_names(["model", "gpu", "gpus", "batch size", "metric", "value"], "ours.csv")
    with pytest.raises(DescriptionError, match='no column "gpus"'):
        column_names(["model", "gpu", "metric", "value"], "ours.csv")


@pytest.mark.parametrize(
    ("said", "plain"),
    [
        ("tokens/GPU/sec", "tokens_per_s_per_gpu"), ("TGS", "tokens_per_s_per_gpu"), ("toks/s", "tokens_per_s"),
        ("Step time [ms]", "iteration_time_ms"), ("it/s", "iterations_per_s"), ("seq/s", "samples_per_s"),
        ("elapsed time per iteration (ms)", "iteration_time_ms"), ("TFLOPs", "tflops"), ("PFLOP/s", "pflops_total"),
        ("train_samples_per_second", "samples_per_s"), ("achieved TFLOPs/GPU", "tflops_per_gpu"),
        ("model flops utilization", "mfu"), ("time/step", "iteration_time"),
    ],
)  # fmt: skip
def test_metrics_are_read_however_they_are_spelled(said: str, plain: str) -> None:
    assert plain_metric(said) == plain and plain in SPEEDS
