"""The network in words: units, whose rate it is, what is not the network, and what must be asked."""

from __future__ import annotations

import pytest
from research.training.accelerator import host_of, network_of
from research.training.observed import observe
from research.training.read import describe
from research.training.rows import PublishedRow
from research.training.systems import read_systems

from syncline.errors import DescriptionError
from syncline.validation.metrics import convention_of, flops_of_step
from syncline.workload.read_job import load_job


def row(**cells: str) -> PublishedRow:
    base = {"source": "a paper 2024", "model": "Llama-2-7B", "gpu": "H100", "gpus": "64", "tp": "1", "pp": "1",
            "seq": "4096", "micro_batch": "2", "global_batch": "128", "zero_or_fsdp": "FSDP", "precision": "bf16",
            "metric": "tokens_per_s_per_gpu", "value": "9000"}  # fmt: skip
    return PublishedRow(2, base | cells)


@pytest.mark.parametrize(
    ("text", "gbps"),
    [
        ("50 GB/s per GPU", 400), ("400 Gb/s CX-7 per GPU", 400), ("400Gb/s (Mellanox CX-7) per GPU", 400),
        ("25 GB/s/GPU", 200), ("8x HDR 200Gb/s per DGX A100, NVSwitch intra-node", 200), ("HDR100", 100),
        ("1600 Gbps node-node interconnect (RoCE)", 200), ("3.2Tb/s per instance", 400), ("3.2 Tbps EFA", 400),
        ("2 x 200GbE", 50), ("NVLink 900 GB/s; 8 x 50 GB/s ConnectX-7", 400), ("400 Gb/s", 400),
        ("100 GB/s bidirectional per GPU RoCE", 400), ("200 Gbit/s Slingshot per NIC", 200),
        ("1x Ethernet 100Gb/Sec, 8x NVIDIA Quantum-2 CX7 InfiniBand (400Gb/s)", 400),
        ("400 gigabit per GPU InfiniBand", 400), ("50 gigabytes per second per GPU", 400), ("NDR400", 400),
        ("2x200 Gb/s per GPU", 400), ("2x200G per GPU", 400), ("8x 400 Gb/s per GPU", 400), ("200 Gbps x 8", 200),
        ("8 HCAs of 200 Gb/s", 200), ("four NICs at 400 Gb/s", 200), ("400Gb/s IB per two GPUs", 200),
        ("25 GB/s (bidirectional 50 GB/s) per GPU", 200), ("NVLink 900 GB/s + 8x NDR400", 400),
        ("CX-7 400G x8", 400), ("400Gb IB", 400), ("8x400G RoCE, 2:1 oversubscribed", 400), ("HDR 8x200", 200),
        ("8*400Gbps", 400), ("3,200 Gbps", 400), ("EFA (4x100)", 50), ("32x100G EFA", 400), ("A3 Mega 1.8 Tbps", 225),
        ("4 Slingshot-11 NICs", 100), ("4 IB NICs (HDR)", 100), ("1 x HDR100 per 4 GPUs", 25), ("8x ConnectX-7", 400),
        ("1 NIC per GPU, 400G", 400), ("4 rails, 400Gbps each", 200), ("400 Gbps NICs x 8", 400), ("EFA 800 Gbps", 100),
        ("64x H100 400 Gb/s", 400), ("CX8 800G", 800),
        ("Storage: 2x IB NDR 400Gb/s, Compute: 4x IB NDR 400Gb/s, Management: 100Gb/s Ethernet NIC", 200),
    ],
)  # fmt: skip
def test_rates_are_read_with_their_unit_and_whose_they_are(text: str, gbps: float) -> None:
    found = network_of(row(interconnect=text), host_of(row()))
    assert found.gpu_Bps == pytest.approx(gbps * 1e9 / 8) and not found.question
    assert "read as" in found.words


@pytest.mark.parametrize(
    "text",
    ["504 GB/s GPU-PCIe", "ROCE2; Data bandwidth for GPU-PCIe: 504 GB/s; PCIe-NIC: 500 GB/s", "900 GB/s NVLink"],
)
def test_buses_inside_a_host_are_not_the_network(text: str) -> None:
    found = network_of(row(interconnect=text), host_of(row()))
    assert found.gpu_Bps is None and not found.question and "is not the network" in found.words


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("100GbE InfiniBand", "Ethernet and InfiniBand in one"), ("400gb/s per GPU", "bits or bytes"),
        ("100 Gigabit Ethernet", "of a GPU, a port or a host"),
        ("10G Ethernet", "of a GPU, a port or a host"), ("ConnectX-6 25Gb/s Ethernet", "of a GPU, a port or a host"),
    ],
)  # fmt: skip
def test_what_is_ambiguous_is_asked_for(text: str, asks: str) -> None:
    with pytest.raises(DescriptionError, match=asks) as caught:
        describe(row(interconnect=text), ())
    assert '"8x 400 Gb/s"' in str(caught.value) and "--systems" in str(caught.value)
    given = read_systems("systems:\n- source: paper\n  network: 100\n", "s.yaml")
    assert describe(row(interconnect=text), given).machine.nic_Bps == pytest.approx(12.5e9)
    alone = describe(row(interconnect=text, gpus="8", global_batch="16"), ())  # one host: nothing depends on it
    assert "not used inside one scale-up domain" in alone.readings[0]


def test_memory_in_the_name_of_a_server_is_no_network() -> None:
    source = "MLPerf Training v4.1 closed results: Dell/results/XE9680x8H100-SXM-80GB/llama2_70b_lora"
    assert network_of(row(source=source), host_of(row())).gpu_Bps is None


def test_an_empty_precision_is_a_remark_and_such_a_run_is_not_fitted_to() -> None:
    runs, _ = observe([row(precision="")], ())
    assert "precision not published: bf16 assumed" in runs[0].described.remarks and runs[0].assumed
    odd, _ = observe([row(precision="?")], ())
    assert 'precision "?" is not understood: bf16 assumed' in odd[0].described.remarks
    said, _ = observe([row()], ())
    assert not said[0].assumed


def test_a_convention_belongs_to_its_metric() -> None:
    job = load_job({"model": "llama2-7b", "batch": {"global": 64, "sequence": 4096}, "recompute": "full"})
    assert convention_of("hfu_pct", "palm", job) == "palm-hw" and convention_of("mfu_pct", "palm", job) == "palm"
    assert convention_of("mfu_pct", "megatron-hw", job) == "megatron-model"
    assert convention_of("tflops_per_gpu", "megatron-hw", job) == "megatron-hw"
    plain = job.model_copy(update={"recompute": "none"})
    assert convention_of("hfu_pct", "palm", plain) == "palm"
    ratio = flops_of_step(job, "palm-hw", 6.7e9) / flops_of_step(job, "palm", 6.7e9)
    assert 1.30 < ratio < 4 / 3  # a third forward of everything but the embedding and the head
    rows = [row(metric="mfu_pct", value="40", recompute="full"), row(metric="hfu_pct", value="53", recompute="full")]
    runs, _ = observe(rows, ())
    first, second = (seconds for _, seconds in runs[0].rows)
    assert first == pytest.approx(second, rel=0.01)  # 40 % of the model's work is 53 % with the third forward


def test_oversubscription_in_words_is_said_to_be_left_out() -> None:
    found = network_of(row(interconnect="8x400G RoCE, 2:1 oversubscribed"), host_of(row()))
    assert '"2:1" not counted' in found.words


def test_a_rate_that_is_not_published_is_that_of_the_host_and_printed() -> None:
    assert describe(row(interconnect="IB"), ()).readings == (
        "no network rate published: 400 Gb/s a GPU, as dgx-h100 has",
    )


def test_zero_2_of_a_pipeline_scatters_once_a_step() -> None:
    cells = {"gpus": "64", "tp": "4", "pp": "4", "dp": "4", "zero_or_fsdp": "ZeRO-2"}
    assert describe(row(**cells), ()).job.parallel.zero == "1"
    assert describe(row(**cells | {"pp": "1", "dp": "16"}), ()).job.parallel.zero == "2"


def test_utilisation_with_experts_counts_what_a_token_meets() -> None:
    cells = {"model": "dbrx", "params_b": "132", "metric": "mfu", "value": "0.4", "precision": "bf16"}
    assert describe(row(**cells), ()).params == pytest.approx(36.5e9, rel=0.03)
