"""Kernels of a device from a real profiler trace and from what Nsight Systems exports."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from syncline.errors import DescriptionError
from syncline.explaining.observed import observed_trace
from syncline.explaining.reading import read_recordings
from syncline.timeline.recording.kernel_kind import kind_of

H200 = Path(__file__).parents[1] / "workload" / "fixtures" / "profiler-h200-ddp.json.gz"
#: name, start and end in us: a product of 60, NCCL for 50 of which 20 are hidden, attention of 10, a norm of 10.
KERNELS = (
    ("nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NTT", 0, 60),
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)", 40, 90),
    ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_128x128x128", 90, 100),
    ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float>", 100, 110),
)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", "products"),
        ("Cijk_Ailk_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT256x256x64", "products"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16>", "products"),
        ("void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64>>", "attention"),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t", "exchange"),
        ("triton_poi_fused_add_mul_silu_3", "memory"),
    ],
)
def test_kernels_are_sorted_by_name(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def sqlite_of(path: Path) -> Path:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        db.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL "
            "(start INT, end INT, deviceId INT, streamId INT, correlationId INT, demangledName INT)"
        )
        db.executemany("INSERT INTO StringIds VALUES (?, ?)", [(i, name) for i, (name, _, _) in enumerate(KERNELS)])
        rows = [(a * 1000, b * 1000, device, 7, i, i) for device in (2, 3) for i, (_, a, b) in enumerate(KERNELS)]
        db.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?)", rows)
    db.close()
    return path


def csv_of(path: Path) -> Path:
    head = "Processing [report.sqlite]\n\nStart (ns),Duration (ns),CorrId,Device,Strm,Name\n"
    lines = [f'{a * 1000},{(b - a) * 1000},1,H100 (0),7,"{name}"' for name, a, b in KERNELS]
    path.write_text(head + "\n".join([*lines, '111000,5,2,H100 (0),7,"[CUDA memcpy Device-to-Device]"']) + "\n")
    return path


@pytest.mark.parametrize("write", [sqlite_of, csv_of])
def test_both_exports_of_nsight_say_the_same(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    path = write(tmp_path / ("r.sqlite" if write is sqlite_of else "r.csv"))
    found = observed_trace(path, steps=2, pipelined=False)
    assert found.step_s == pytest.approx(55e-6, rel=0.06)
    assert found.parts_s == pytest.approx({"products": 30e-6, "attention": 5e-6, "memory": 5e-6, "exchange": 15e-6})
    assert "exchange" not in observed_trace(path, steps=2, pipelined=True).parts_s


def test_a_profiler_trace_of_a_real_run() -> None:
    recording = read_recordings([H200])[0]
    if recording.steps:
        assert observed_trace(H200, steps=None, pipelined=False).parts_s["products"] > 0
    else:
        with pytest.raises(DescriptionError, match="does not mark its steps"):
            observed_trace(H200, steps=None, pipelined=False)
        assert observed_trace(H200, steps=2, pipelined=False).parts_s["products"] > 0


def test_ranks_that_share_an_export_have_a_recording_each(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    processes = {0: 5 << 24, 1: 6 << 24}
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        db.executemany("INSERT INTO StringIds VALUES (?, ?)", [(0, "gemm"), (1, "cudaLaunchKernel")])
        columns = "start INT, end INT, deviceId INT, streamId INT, correlationId INT, demangledName INT, globalPid INT"
        db.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({columns})")
        db.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME "
            "(start INT, end INT, globalTid INT, correlationId INT, nameId INT)"
        )
        for device, process in processes.items():  # both processes count their calls from 1
            db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (9000, 19000, ?, 7, 1, 0, ?)", (device, process))
            began = 1000 + 4000 * device
            db.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, 1, 1)", (began, began + 1000, process + 77)
            )
    db.close()
    found = read_recordings([path])
    assert [len(one.device) for one in found] == [1, 1]
    waited = [float(one.device.start_s[0] - one.host.end_s[one.device.call[0]]) for one in found]
    assert waited == pytest.approx([7e-6, 3e-6])


@pytest.mark.parametrize(
    ("table", "message"),
    [("StringIds (id INT)", "the export has no kernels"), ("people (id INT)", "not an export of Nsight Systems")],
)
def test_a_database_without_kernels_says_what_it_is(tmp_path: Path, table: str, message: str) -> None:
    path = tmp_path / "r.sqlite"
    with sqlite3.connect(path) as db:
        db.execute(f"CREATE TABLE {table}")
    db.close()
    with pytest.raises(DescriptionError, match=message):
        read_recordings([path])


@pytest.mark.parametrize(("content", "message"), [(b"", "is empty"), (b"QDSTRM\x00\x01", "nsys export")])
def test_what_is_no_trace_says_so(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.nsys-rep"
    path.write_bytes(content)
    with pytest.raises(DescriptionError) as error:
        read_recordings([path])
    assert message in str(error.value)
