"""Megatron-Core: a GPT from its layer specification, tensor parallel inside a host, with its own DDP and optimizer."""

import os
from functools import partial

import torch
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer.transformer_config import TransformerConfig

LENGTH, VOCAB, MICROBATCHES = 1024, 32000, 4


def forward_step(data: object, model: torch.nn.Module) -> tuple[torch.Tensor, object]:
    tokens = torch.randint(0, VOCAB, (1, LENGTH), device="cuda")
    positions = torch.arange(LENGTH, device="cuda")[None]
    loss = model(tokens, positions, None, labels=tokens)
    return loss, lambda out: (out.float().mean(), {"loss": out.detach()})


def main() -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.distributed.init_process_group("nccl")
    tensor = min(8, torch.distributed.get_world_size())
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=tensor)
    model_parallel_cuda_manual_seed(1)
    config = TransformerConfig(
        num_layers=4,
        hidden_size=2048,
        num_attention_heads=16,
        tensor_model_parallel_size=tensor,
        bf16=True,
        params_dtype=torch.bfloat16,
        pipeline_dtype=torch.bfloat16,
        gradient_accumulation_fusion=False,
        attention_backend=None,
    )
    layers = get_gpt_layer_local_spec()
    model = GPTModel(config, layers, VOCAB, LENGTH).cuda().bfloat16()
    parallel = DistributedDataParallelConfig(overlap_grad_reduce=True, use_distributed_optimizer=True)
    model = DistributedDataParallel(config, parallel, model)
    config.finalize_model_grads_func = finalize_model_grads
    settings = OptimizerConfig(optimizer="adam", lr=1e-4, bf16=True, use_distributed_optimizer=True)
    optimizer = get_megatron_optimizer(settings, [model])
    run = partial(get_forward_backward_func(), forward_step_func=forward_step, data_iterator=iter(()), model=[model])
    for _ in range(100):
        model.zero_grad_buffer()
        optimizer.zero_grad()
        run(num_microbatches=MICROBATCHES, seq_length=LENGTH, micro_batch_size=1)
        optimizer.step()


if __name__ == "__main__":
    main()
