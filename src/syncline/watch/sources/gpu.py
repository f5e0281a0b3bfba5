"""GPUs through NVML: NVLink bytes and errors, PCIe replays, use, memory and power. Silent where there is no NVML."""

from __future__ import annotations

from typing import Any

from syncline.watch.metric import Key, Reading
from syncline.watch.sources.source import CounterSource

KIB = 1024
_FIELDS = {
    # The scope id of all links of a GPU together.
    "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX": ("gpu.nvlink_tx_bytes", KIB),
    "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX": ("gpu.nvlink_rx_bytes", KIB),
    "NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": ("gpu.nvlink_crc_errors", 1),
    "NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": ("gpu.nvlink_replay_errors", 1),
    "NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": ("gpu.nvlink_recovery_errors", 1),
}
ALL_LINKS = 0xFFFFFFFF
MAX_LINKS = 18


class GpuSource(CounterSource):
    """Every GPU that NVML shows. `nvml` is the seam: the pynvml module, or something that answers like it."""

    name = "gpu"

    def __init__(self, nvml: Any | None = None) -> None:
        self._nvml: Any = nvml if nvml is not None else _load()
        self._gpus: list[Any] = []
        self._links: dict[int, tuple[int, float]] = {}
        if self._nvml is None:
            self.problem = "no NVML library"
            return
        try:
            self._nvml.nvmlInit()
            count = self._nvml.nvmlDeviceGetCount()
            self._gpus = [self._nvml.nvmlDeviceGetHandleByIndex(i) for i in range(count)]
        except self._nvml.NVMLError as error:
            self.problem = f"NVML: {error}"

    @property
    def num_gpus(self) -> int:
        return len(self._gpus)

    def read(self) -> Reading:
        """Return what NVML tells of every GPU; a GPU that has fallen off the bus is left out."""
        reading: dict[Key, float] = {}
        for index, handle in enumerate(self._gpus):
            part: dict[Key, float] = {}
            for look in (self._fields, self._state, self._active_links):
                try:
                    look(str(index), handle, part)
                except self._nvml.NVMLError as error:
                    self.problem = f"GPU {index}: {error}"
            reading.update(part)
        return reading

    def close(self) -> None:
        if self._gpus:
            self._nvml.nvmlShutdown()
            self._gpus = []

    def _fields(self, gpu: str, handle: Any, reading: dict[Key, float]) -> None:
        known = {getattr(self._nvml, n): meaning for n, meaning in _FIELDS.items() if hasattr(self._nvml, n)}
        wanted = [(field, ALL_LINKS) if "bytes" in metric else field for field, (metric, _) in known.items()]
        for answer in self._nvml.nvmlDeviceGetFieldValues(handle, wanted):
            if answer.nvmlReturn == 0:
                metric, factor = known[answer.fieldId]
                reading[Key(metric, gpu)] = int(answer.value.ullVal) * factor

    def _state(self, gpu: str, handle: Any, reading: dict[Key, float]) -> None:
        nvml = self._nvml
        reading[Key("gpu.utilisation", gpu)] = nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
        reading[Key("gpu.memory_used_bytes", gpu)] = nvml.nvmlDeviceGetMemoryInfo(handle).used
        reading[Key("gpu.power_w", gpu)] = nvml.nvmlDeviceGetPowerUsage(handle) / 1e3
        reading[Key("gpu.pcie_replays", gpu)] = nvml.nvmlDeviceGetPcieReplayCounter(handle)

    def _active_links(self, gpu: str, handle: Any, reading: dict[Key, float]) -> None:
        nvml, active = self._nvml, 0
        for link in range(MAX_LINKS):
            try:
                active += nvml.nvmlDeviceGetNvLinkState(handle, link) == nvml.NVML_FEATURE_ENABLED
            except nvml.NVMLError:
                break
        reading[Key("gpu.nvlinks_active", gpu)] = active
        speed = getattr(nvml, "NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON", None)
        if active and speed is not None:
            (answer,) = nvml.nvmlDeviceGetFieldValues(handle, [speed])
            if answer.nvmlReturn == 0:
                # NVML says MB/s of one link, both its bits and its bytes being called Mbps in the header.
                reading[Key("gpu.nvlink_rate_Bps", gpu)] = float(answer.value.ullVal) * 1e6 * active


def _load() -> Any:
    try:
        import pynvml  # type: ignore[import-untyped]
    except ImportError:
        return None
    return pynvml
