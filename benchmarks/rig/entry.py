"""Launch files before a framework's real entry point, in a process of its own, from the written files alone.

    python -m rig.entry FRAMEWORK FOLDER...     one JSON object a folder: fields and parameters, or why it was refused

Ranks are those of a fake process group as large as the job. What no CPU installs (Transformer Engine, checkpointing of
a vendor, models that are no language model) is an empty module. Sources that are no packages lie under
`FRAMEWORK_SOURCES`: Megatron-LM (core_v0.16.1) as `megatron`, Megatron-Bridge (v0.6.0) with the Megatron-LM that it
pins as `bridge` and `megatron-bridge-lm`, MaxText as `maxtext`.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import json
import os
import runpy
import shlex
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

from rig import launched

SOURCES = Path(os.environ.get("FRAMEWORK_SOURCES", "sources")).resolve()
EMPTY = {
    "megatron": ("transformer_engine",),
    "nemo": ("transformer_engine", "triton", "datasets", "megatron.energon", "PIL", "diffusers", "modelopt",
             "megatron.bridge.diffusion", "nvidia_resiliency_ext"),
}  # fmt: skip
PATHS = {"megatron": ("megatron",), "nemo": ("bridge/src", "megatron-bridge-lm"), "maxtext": ("maxtext/src",)}


class _Anything(type):
    """A class that has every attribute, each such a class again."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name, (), {"__init__": lambda self, *a, **k: None, "__call__": lambda self, *a, **k: self})

    def __getitem__(cls, key: object) -> Any:
        return cls

    def __contains__(cls, key: object) -> bool:
        return False


class _Module(ModuleType):
    __version__ = "2.9.0"

    def __getattr__(self, name: str) -> Any:
        return getattr(_Anything("empty", (), {}), name)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, empty: tuple[str, ...]) -> None:
        self.empty = empty

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        empty = any(f"{name}.".startswith(f"{each}.") for each in self.empty)
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if empty else None

    def create_module(self, spec: Any) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        module.__path__ = []


class Built(Exception):  # noqa: N818  (no error: what an entry point is stopped with once its model is there)
    """The model is built; what comes next in the entry point are the tokenizer and the data, which the files leave."""


def _words() -> list[str]:
    return [word for line in Path("arguments.txt").read_text().splitlines() for word in shlex.split(line)]


def _stop(*_: Any, **__: Any) -> None:
    raise Built


def megatron(ranks: int) -> tuple[launched.Read, int]:
    """Parse and validate as pretrain_gpt.py does, make the configuration of its model, and build the model whole."""
    import torch
    from megatron.training import arguments

    given = ["pretrain_gpt.py", *_words(), "--mock-data", "--tokenizer-type", "NullTokenizer"]
    with (
        mock.patch.object(sys, "argv", given),
        mock.patch.object(torch.cuda, "get_device_capability", lambda *_: (9, 0)),
        mock.patch.object(torch.cuda, "get_device_properties", lambda *_: SimpleNamespace(major=9, minor=0)),
        contextlib.redirect_stdout(sys.stderr),
    ):
        args = arguments.parse_args()
        arguments.validate_args(args)
        arguments.core_transformer_config_from_args(args)
        return launched.megatron(args)


def nemo(ranks: int) -> tuple[launched.Read, int]:
    """Run the written script up to training, validate its configuration as `pretrain` does, and build the model."""
    from megatron.bridge.training import pretrain
    from megatron.bridge.training.config import runtime_config_update

    found: list[Any] = []
    with (
        mock.patch.object(pretrain, "pretrain", lambda config, *_: found.append(config)),
        mock.patch.object(sys, "argv", ["pretrain.py", *_words()]),
        contextlib.redirect_stdout(sys.stderr),
    ):
        runpy.run_path("pretrain.py", run_name="__main__")
        runtime_config_update(found[0])  # what `pretrain` begins with: precision, overlap, then validation
        if found[0].train.global_batch_size % (found[0].data_parallel_size * found[0].train.micro_batch_size):
            raise ValueError("the batch does not divide by replicas and micro-batch")
        return launched.bridge(found[0])


def torchtitan(ranks: int) -> tuple[launched.Read, int]:
    """Parse the options with ConfigManager and build the Trainer up to its tokenizer, weights on the meta device."""
    import torch
    from torchtitan import trainer
    from torchtitan.config import ConfigManager

    sys.modules.pop("planned_model", None)
    sys.path.insert(0, os.getcwd())
    try:
        # torch 2.13 does not wrap the weights of spmd_types, the default of torchtitan 0.3, in FSDP.
        beside = ["--parallelism.spmd_backend", "partial_dtensor"]
        config = ConfigManager().parse_args([*_words()[:4], *beside, *_words()[4:]])
    finally:
        sys.path.pop(0)
    config.comm.mode = "fake_backend"
    read = launched.torchtitan(config.model_spec.model)
    meta = SimpleNamespace(**{**vars(trainer.utils), "device_type": "meta",
                              "device_module": SimpleNamespace(set_device=lambda _: None),
                              "get_local_device": lambda: torch.device("cpu")})  # fmt: skip
    built = object.__new__(trainer.Trainer)
    with (
        mock.patch.object(trainer, "utils", meta),
        mock.patch.object(type(config.tokenizer), "build", _stop),
        mock.patch.dict(os.environ, NGPU=str(ranks)),
    ):
        try:
            trainer.Trainer.__init__(built, config)
        except Built:
            return read
        finally:
            if torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()
    raise AssertionError("the Trainer asked for no tokenizer")


def deepspeed(ranks: int) -> tuple[launched.Read, int]:
    """Read the config as `deepspeed.initialize` does, and build the model of the description on the meta device."""
    import torch
    from deepspeed import comm
    from deepspeed.runtime.config import DeepSpeedConfig
    from transformers import AutoConfig, AutoModelForCausalLM

    if not Path("model.json").exists():
        raise ValueError("the files leave the model to the script: transformers has none like it")
    with mock.patch.object(comm, "get_rank", return_value=0):  # without a group it takes every world for one rank
        DeepSpeedConfig("ds_config.json", mpu=SimpleNamespace(get_data_parallel_world_size=lambda: ranks))
    config = AutoConfig.from_pretrained("model.json")
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    return launched.transformers(config, model)


def maxtext(ranks: int) -> tuple[launched.Read, int]:
    """Read the config with pyconfig, lay the mesh over as many devices, and build the model abstractly."""
    import jax
    from maxtext.configs import pyconfig
    from maxtext.utils import max_utils

    devices = jax.devices()
    hosts = ranks // min(ranks, json.loads(Path("ranks.json").read_text())["gpus_per_host"])
    with (
        mock.patch.object(max_utils, "get_num_slices", lambda *_: hosts),
        mock.patch.object(max_utils, "maybe_initialize_jax_distributed_system", lambda _: None),
        mock.patch.object(jax, "devices", lambda *_: devices * ranks),
        contextlib.redirect_stdout(sys.stderr),
    ):
        return launched.maxtext(pyconfig.initialize(["", "config.yml"]), ranks, hosts)


ENTRIES: dict[str, Callable[[int], tuple[launched.Read, int]]] = {
    "megatron": megatron, "nemo": nemo, "torchtitan": torchtitan, "deepspeed": deepspeed, "maxtext": maxtext,
}  # fmt: skip


def _prepare(framework: str) -> None:
    sys.path[:0] = [str(SOURCES / path) for path in PATHS.get(framework, ())]
    sys.meta_path.insert(0, _Finder(EMPTY.get(framework, ())))
    if not hasattr(typing, "override"):
        typing.override = lambda each: each
    if framework == "torchtitan":  # it takes a machine without accelerators for one with CUDA
        import torch
        from torchtitan.tools import utils

        def fixed(value: Any) -> Callable[..., Any]:
            return lambda *_: value

        utils.device_type, utils.device_module = "cpu", torch.cpu
        utils.has_cuda_capability = fixed(True)
        for name, value in {"get_device_name": "H100", "reset_peak_memory_stats": None, "empty_cache": None,
                            "get_device_properties": SimpleNamespace(total_memory=80 * 2**30),
                            "memory_stats": dict[str, int]()}.items():  # fmt: skip
            setattr(torch.cpu, name, fixed(value))


def main(framework: str, folders: list[str]) -> None:
    """Print what the framework makes of each folder."""
    _prepare(framework)
    here = os.environ.copy()
    for folder in map(os.path.abspath, folders):
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(here)
        ranks = json.loads(Path("ranks.json").read_text())["ranks"]
        lines = Path("environment.sh").read_text().splitlines()
        exports = (line.removeprefix("export ").partition("=") for line in lines)
        os.environ.update({name: value for name, _, value in exports if name})
        os.environ.update(WORLD_SIZE=str(ranks), RANK="0", LOCAL_RANK="0")
        answer: dict[str, Any] = {"folder": folder}
        try:
            answer["fields"], answer["params"] = ENTRIES[framework](ranks)
        except (Exception, SystemExit) as error:  # whatever a framework refuses with
            answer["error"] = f"{type(error).__name__}: {error}"[:600]
            import traceback

            traceback.print_exc()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
