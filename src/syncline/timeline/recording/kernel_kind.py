"""What a kernel does, by its name: vendors' libraries, compilers and collectives each have their own spelling."""

from __future__ import annotations

import re

EXCHANGE = "exchange"
KINDS = ("products", "attention", EXCHANGE, "memory")
LINES = {"products": "matrix products", "attention": "attention", "memory": "memory-bound kernels",
         "optimizer": "optimizer", EXCHANGE: "exchange"}  # fmt: skip
"""Kinds of kernels as lines of an account, measured or previewed."""
#: First match wins; what matches nothing only moves memory.
_PATTERNS = (
    (
        EXCHANGE,
        re.compile(
            r"nccl|rccl|deep_?ep|all_?to_?all|allreduce_kernel|userbuffers|cross_device_reduce|multimem_|nvshmem|"
            r"\bep::|int(?:er|ra)node::",
            re.IGNORECASE,
        ),
    ),
    ("attention", re.compile(r"flash|fmha|\bfa[23]\b|attention|attn|sdpa|mha_(?:fwd|bwd)", re.IGNORECASE)),
    (
        "products",
        re.compile(
            r"gemm|nvjet|cublas|xmma|matmul|cijk_|wgmma|_tn_|_nt_|_nn_|splitk|scaled_mm|cutlass|convolve|conv2d|"
            r"_mm_|gemv|implicit_con|winograd|addmm|aten::b?mm|aten::linear|convolution|miopen.*conv|igemm",
            re.IGNORECASE,
        ),
    ),
)
_ALGORITHM = re.compile(r"(RING|NVLS_TREE|TREE|NVLS|COLLNET_DIRECT|COLLNET_CHAIN|PAT)_(LL128|LL|SIMPLE)")
_OPTIMIZER = re.compile(r"multi_tensor_apply|fused_?adam|\badamw?\b|lamb|fused_?sgd|_foreach|muon", re.IGNORECASE)
_EXPERTS = re.compile(r"dispatch|combine", re.IGNORECASE)


def kind_of(name: str) -> str:
    """Return what a kernel does, by its name.

    >>> kind_of("nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NTT"), kind_of("ncclDevKernel_AllReduce_Sum_bf16_RING_LL")
    ('products', 'exchange')
    """
    return next((kind for kind, pattern in _PATTERNS if pattern.search(name)), "memory")


def algorithm_of(name: str) -> str:
    """Return algorithm and protocol as a collective's kernel is named after them; "" where it is not.

    >>> algorithm_of("ncclDevKernel_AllReduce_Sum_bf16_RING_LL")
    'ring LL'
    """
    found = _ALGORITHM.search(name)
    return f"{found[1].replace('_', ' ').lower()} {found[2]}" if found else ""


def exchanges_experts(name: str) -> bool:
    """Tell whether a kernel of a library for experts sends tokens to them or back."""
    return _EXPERTS.search(name) is not None


def optimizes(name: str) -> bool:
    """Tell whether a kernel updates parameters.

    >>> optimizes("void multi_tensor_apply_kernel<FusedAdamMathFunctor>"), optimizes("vectorized_elementwise_kernel")
    (True, False)
    """
    return _OPTIMIZER.search(name) is not None
