"""Overrides of `plan --for nemo` before Megatron-Bridge's own `ConfigContainer.validate`.

Megatron-Bridge imports GPU kernels that no CPU installs (Transformer Engine, Triton) and data loaders that no check
uses: these are replaced by empty modules. The recipe is the package's own pre-training template with the model provider
that the written script begins with, which the overrides fill.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from types import ModuleType
from typing import Any

from syncline.planning.frameworks.launch_nemo import nemo_overrides
from syncline.workload.job import Job
from syncline.workload.shape import Shape

EMPTY = ("transformer_engine", "triton", "datasets", "megatron.energon", "PIL")


class _Anything(type):
    """A class that has every attribute, each such a class again."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name, (), {"__init__": lambda self, *a, **k: None, "__call__": lambda self, *a, **k: self})

    def __getitem__(cls, key: object) -> Any:
        return cls


class _Module(ModuleType):
    __version__ = "2.9.0"

    def __getattr__(self, name: str) -> Any:
        return getattr(_Anything("empty", (), {}), name)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        empty = any(f"{name}.".startswith(f"{each}.") for each in EMPTY)
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if empty else None

    def create_module(self, spec: Any) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        module.__path__ = []


def bridge(job: Job, shape: Shape) -> None:
    """Build the recipe, apply the written overrides as Megatron-Bridge does, and validate it; each may raise."""
    if not any(isinstance(each, _Finder) for each in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    from megatron.bridge.recipes.common import _pretrain_common
    from megatron.bridge.training.mixed_precision import bf16_mixed
    from megatron.bridge.training.utils.omegaconf_utils import process_config_with_overrides

    container = _pretrain_common()
    container.model = _provider(shape)
    container.mixed_precision = bf16_mixed()
    os.environ["WORLD_SIZE"] = str(job.gpus)
    # The package of 0.3 calls a length otherwise, and takes a function where 0.6 takes its name.
    given = [text.replace("dataset.seq_length", "dataset.sequence_length") for text in nemo_overrides(job, shape)]
    words = [text for text in given if not text.startswith("model.activation_func=")]
    process_config_with_overrides(container, cli_overrides=words).validate()
    ranks = container.data_parallel_size * container.train.micro_batch_size
    if container.train.global_batch_size % ranks:  # its loop's own rule, asked when training starts
        raise ValueError(f"a batch of {container.train.global_batch_size} over {ranks} sequences at once")


def _provider(shape: Shape) -> Any:
    """Return the model without assumptions that the written script begins with."""
    import torch.nn.functional
    from megatron.bridge.models.gpt_provider import GPTModelProvider
    from megatron.bridge.models.mla_provider import MLAModelProvider

    kind = MLAModelProvider if shape.mla else GPTModelProvider
    sizes = {"num_layers": shape.layers, "hidden_size": shape.hidden, "num_attention_heads": shape.heads}
    return kind(**sizes, activation_func=torch.nn.functional.silu)
