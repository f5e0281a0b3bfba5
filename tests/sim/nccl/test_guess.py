from __future__ import annotations

import pytest

from syncline.errors import DescriptionError
from syncline.sim.nccl.guess import guess


@pytest.mark.parametrize(
    ("text", "hosts", "gpus", "expected"),
    [
        ("8x8 H100, NDR InfiniBand 8x400Gb/s", 8, 8, ("h100", "infiniband", 8, 50e9)),
        ("DGX A100, HDR InfiniBand", 4, 8, ("a100", "infiniband", 8, 25e9)),
        ("3 hosts, 8x A100, 4x 200Gb/s HDR", 3, 8, ("a100", "infiniband", 4, 25e9)),
        ("HGX H200 8x400GbE RoCE", 4, 8, ("h200", "roce", 8, 50e9)),
        ("AWS p5en.48xlarge (H200)", 4, 8, ("h200", "efa-v3", 8, 50e9)),
        ("AWS p4d.24xlarge A100-40GB EFA", 4, 8, ("a100", "efa-v1", 4, 12.5e9)),
        ("GB200 NVL72, 2 racks", 36, 4, ("gb200", "infiniband", 4, 50e9)),
        ("GCP a3-ultragpu-8g H200", 2, 8, ("h200", "roce", 8, 50e9)),
        ("Azure ND H100 v5", 2, 8, ("h100", "infiniband", 8, 50e9)),
        ("8x B200, InfiniBand NDR", 8, 8, ("b200", "infiniband", 8, 50e9)),
    ],
)
def test_text_to_system(text: str, hosts: int, gpus: int, expected: tuple[str, str, int, float]) -> None:
    system = guess(text, "", hosts, gpus)
    assert (system.gpu, system.network, system.num_nics, system.nic_rate_Bps) == expected


def test_environment_and_release_from_notes() -> None:
    system = guess("8x H100 node", "NCCL 2.21.5; NCCL_NVLS_ENABLE=0 (ring)", 1, 8)
    assert system.nccl == (2, 21)
    assert system.env == {"NCCL_NVLS_ENABLE": "0"}


def test_nothing_known_is_an_error() -> None:
    with pytest.raises(DescriptionError, match="names no GPU or machine"):
        guess("a cluster", "", 2, 8)
