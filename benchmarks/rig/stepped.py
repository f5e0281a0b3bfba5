"""A training script around a framework's own training loop, for `syncline preview`, from the written files alone.

`torchrun ... -m rig.stepped FRAMEWORK SEQUENCE` in their folder: every token is 0, and no tokenizer is asked for.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

STEPS = 4


def words() -> list[str]:
    """Return the written arguments."""
    return [word for line in Path("arguments.txt").read_text().splitlines() for word in shlex.split(line)]


def torchtitan() -> None:
    """Train with torchtitan's Trainer."""
    import torch
    from torchtitan import trainer
    from torchtitan.config import ConfigManager

    sys.path.insert(0, os.getcwd())
    given = [word for word in words() if word != "--compile.enable"]  # the compiler sees no tensors without values
    # torch 2.13 does not wrap the weights of spmd_types, the default of torchtitan 0.3, in FSDP.
    given[4:4] = ["--parallelism.spmd_backend", "partial_dtensor", "--training.steps", str(STEPS),
                  "--training.disable_cuda_graphs"]  # fmt: skip
    config = ConfigManager().parse_args(given)

    def data(local_batch_size: int, seq_len: int, **_: Any) -> Iterator[Any]:
        where = torch.arange(seq_len).expand(local_batch_size, seq_len)
        while True:
            tokens = torch.zeros(local_batch_size, seq_len, dtype=torch.long)
            yield {"input": tokens, "positions": where}, tokens

    _by_micro_batches()
    with (
        mock.patch.object(type(config.tokenizer), "build", lambda *_, **__: None),
        mock.patch.object(type(config.dataloader), "build", lambda _, **given: data(**given)),
    ):
        built = trainer.Trainer(config)
        batches = data(
            config.parallelism.pipeline_parallel_microbatch_size
            if built.parallel_dims.pp_enabled
            else config.training.local_batch_size, config.training.seq_len,
        )  # fmt: skip
        for built.step in range(2, STEPS + 2):  # the first is logged
            built.train_step(batches)


def _by_micro_batches() -> None:
    """Let the pipelines of torch 2.13 take lists of micro-batches, as those that torchtitan 0.3 is written for do."""
    import torch
    from torch.distributed.pipelining import schedules

    def taking(schedule: Any) -> None:
        whole = schedule.step

        def step(self: Any, arg_mbs: Any, kwarg_mbs: Any, target_mbs: Any, **named: Any) -> Any:
            given = arg_mbs or [()] * self._n_microbatches, kwarg_mbs
            with mock.patch.object(self, "_split_inputs", lambda *_: given):
                return whole(self, target=target_mbs and torch.cat(target_mbs), **named)

        schedule.step = step

    taking(schedules.PipelineScheduleSingle)
    taking(schedules.PipelineScheduleMulti)


def deepspeed() -> None:
    """Train the model of the description with deepspeed.initialize, as the script that the files ask for."""
    import json

    import deepspeed
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = json.loads(Path("ds_config.json").read_text())
    config["optimizer"]["params"]["torch_adam"] = True  # DeepSpeed's own is compiled on its host
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained("model.json"))
    if config.get("activation_checkpointing"):
        model.gradient_checkpointing_enable()
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    tokens = torch.zeros(config["train_micro_batch_size_per_gpu"], int(sys.argv[2]), dtype=torch.long).cuda()
    for _ in range(STEPS * config["gradient_accumulation_steps"]):
        engine.backward(engine(input_ids=tokens, labels=tokens).loss)
        engine.step()


#: What a preview has no kernels of: Transformer Engine's layers and Apex'.
LOCAL = ("--transformer-impl", "local", "--no-persist-layer-norm", "--no-gradient-accumulation-fusion",
         "--no-masked-softmax-fusion", "--no-rope-fusion")  # fmt: skip


def megatron() -> None:
    """Run pretrain_gpt.py."""
    import runpy

    import torch
    from megatron.core.datasets import utils
    from megatron.core.rerun_state_machine import RerunDataIterator
    from megatron.core.transformer import torch_norm
    from megatron.core.transformer.moe import moe_utils
    from megatron.training import get_args, training

    given = [word for word in words() if word != "--moe-grouped-gemm"]
    vocabulary = int(given[given.index("--vocab-size") + 1]) - 1  # to which the tokenizer adds a word
    left = ("--mock-data", "--tokenizer-type", "NullTokenizer", "--vocab-size", str(vocabulary), "--eval-iters", "0",
            "--lr", "1e-4")  # fmt: skip
    sys.argv = ["pretrain_gpt.py", *given, *left, *LOCAL, "--train-iters", str(STEPS)]

    def data(*_: Any) -> Any:
        args = get_args()
        shape = (args.micro_batch_size, args.seq_length)
        tokens = torch.zeros(shape, dtype=torch.long)
        batch = {"tokens": tokens, "labels": tokens, "loss_mask": torch.ones(shape), "position_ids": tokens}

        def batches() -> Iterator[Any]:
            while True:
                yield batch

        args.do_train, args.do_valid, args.do_test = True, False, False
        return RerunDataIterator(batches()), None, None

    def norm(config: Any, hidden_size: int, eps: float = 1e-5, **_: Any) -> Any:
        made = (torch.nn.RMSNorm if config.normalization == "RMSNorm" else torch.nn.LayerNorm)(hidden_size, eps=eps)
        for weight in made.parameters():
            weight.sequence_parallel = config.sequence_parallel  # as Transformer Engine's does
        return made

    moe_utils.te_general_gemm = None  # which the router asks for before it falls back
    with (
        mock.patch.object(torch_norm.WrappedTorchNorm, "__new__", lambda _, *given, **named: norm(*given, **named)),
        mock.patch.object(utils, "compile_helpers", lambda: None),
        mock.patch.object(training, "build_train_valid_test_data_iterators", data),
    ):
        runpy.run_path(str(Path(os.environ["MEGATRON"]) / "pretrain_gpt.py"), run_name="__main__")


if __name__ == "__main__":
    {"deepspeed": deepspeed, "megatron": megatron, "torchtitan": torchtitan}[sys.argv[1]]()
