"""What a loop takes on this machine's GPU, beside what was foreseen. Reads NVML; sets nothing."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from types import TracebackType
from typing import Any, Dict, List, Optional, Tuple, Type

from ._joulecast import Prediction

# The energy counter is a staircase: only its jumps say at which time it had which value, so that energy is taken between two
# jumps. Rules and limits are those of `calibrate` (kernels/src/energy.rs).
_POLL_S = 0.002
_FROZEN_S = 1.0
_LEAST_TICKS = 4
_LEAST_WINDOW_S = 0.5

_NOT_SUPPORTED = 3
# Reasons why the clock is held back (nvml.h), and what they are called here.
_REASONS = (
    (0x04, "power_limit"),
    (0x08, "hardware_slowdown"),
    (0x20, "software_thermal"),
    (0x40, "hardware_thermal"),
    (0x80, "power_brake"),
)


class MeasureError(RuntimeError):
    """This machine has no GPU that can be read, or what was read cannot be believed."""


class _Nvml:
    """The few calls of NVML that read a GPU."""

    def __init__(self, index: int) -> None:
        path = os.environ.get("JOULECAST_NVML", "libnvidia-ml.so.1" if os.name != "nt" else "nvml.dll")
        try:
            self._library = ctypes.CDLL(path)
        except OSError as why:
            raise MeasureError(
                f"no NVIDIA driver on this machine ({path} cannot be loaded): measure() reads a GPU through NVML; predict() needs none"
            ) from why
        self._check(self._library.nvmlInit_v2(), "NVML cannot be used")
        self._device = ctypes.c_void_p()
        call = self._library.nvmlDeviceGetHandleByIndex_v2
        self._check(call(ctypes.c_uint(index), ctypes.byref(self._device)), f"no GPU {index}")

    def _check(self, code: int, what: str) -> None:
        if code == 0:
            return
        text = getattr(self._library, "nvmlErrorString", None)
        told = None
        if text is not None:
            text.restype = ctypes.c_char_p
            told = text(code)
        raise MeasureError(f"{what}: {told.decode() if told else code}")

    def name(self) -> str:
        text = ctypes.create_string_buffer(96)
        self._check(self._library.nvmlDeviceGetName(self._device, text, ctypes.c_uint(96)), "the GPU's name")
        return text.value.decode("utf-8", "replace")

    def energy_j(self) -> float:
        value = ctypes.c_ulonglong()
        code = self._library.nvmlDeviceGetTotalEnergyConsumption(self._device, ctypes.byref(value))
        if code == _NOT_SUPPORTED:
            raise MeasureError("this GPU has no energy counter (Volta and later have): measure() cannot read it")
        self._check(code, "the energy counter")
        return value.value / 1000.0

    def held_back_by(self) -> int:
        value = ctypes.c_ulonglong()
        for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            call = getattr(self._library, name, None)
            if call is not None and call(self._device, ctypes.byref(value)) == 0:
                return value.value
        return 0

    def close(self) -> None:
        self._library.nvmlShutdown()


class measure:
    """Measures the steps of a loop: times each, and reads the GPU's energy counter from tick to tick.

    ::

        foreseen = jc.predict(model, "h100", batch=64, framework="pytorch", example_inputs=x)
        with jc.measure(gpu=0, foreseen=foreseen) as m:
            for batch in batches:
                model(batch.cuda()); m.step()
        print(m)                 # measured, foreseen, and their ratio

    `sync`: what waits for the GPU before the clock is read; without, `torch.cuda.synchronize` of a torch that is imported and has
    CUDA. Waiting is done at the loop's beginning and end alone. Nothing of the GPU is set.

    After the block `time_s`, `power_w`, `energy_j` are those of a step, `flags` what to know of them: "few_ticks" and
    "short_window" (under half a second: take more steps), "power_limit", "hardware_thermal" and others where the clock was held back.

    Raises MeasureError without a GPU, without an energy counter, or where the counter stands still or falls.
    """

    def __init__(self, gpu: int = 0, foreseen: Optional[Prediction] = None, *, sync: Any = None) -> None:
        self._nvml = _Nvml(gpu)
        self.foreseen = foreseen
        self.gpu = self._nvml.name()
        self.steps = 0
        self.flags: List[str] = []
        self.time_s: Optional[float] = None
        self.power_w: Optional[float] = None
        self.energy_j: Optional[float] = None
        self._sync = sync
        self._samples: List[Tuple[float, float]] = []
        self._reasons = 0
        self._failed: Optional[BaseException] = None
        self._stop = threading.Event()
        self._thread: Optional[threading.Thread] = None
        self._began = 0.0

    def _wait(self) -> None:
        if self._sync is not None:
            self._sync()
            return
        import sys

        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_available():
            torch.cuda.synchronize()

    def _poll(self) -> None:
        try:
            last: Optional[float] = None
            while not self._stop.is_set():
                energy = self._nvml.energy_j()
                if energy != last:
                    self._samples.append((time.perf_counter(), energy))
                    self._reasons |= self._nvml.held_back_by()
                    last = energy
                self._stop.wait(_POLL_S)
        except BaseException as why:  # noqa: B036: told where the block ends
            self._failed = why

    def __enter__(self) -> "measure":
        self._nvml.energy_j()
        self._wait()
        self._thread = threading.Thread(target=self._poll, name="joulecast-measure", daemon=True)
        self._thread.start()
        self._began = time.perf_counter()
        return self

    def step(self, count: int = 1) -> None:
        """Says that so many steps were handed to the GPU."""
        self.steps += count

    def __exit__(
        self, kind: Optional[Type[BaseException]], why: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        ended = None
        try:
            if kind is None:
                self._wait()
                ended = time.perf_counter()
        finally:
            self._stop.set()
            if self._thread is not None:
                self._thread.join()
            self._nvml.close()
        if ended is not None:
            self._finish(ended)

    def _finish(self, ended: float) -> None:
        if self._failed is not None:
            raise MeasureError(str(self._failed)) from self._failed
        if self.steps == 0:
            raise MeasureError("no step was counted: call m.step() after each")
        took = ended - self._began
        # The first value was there before the poll: only later ones are jumps.
        ticks = [(at, energy) for at, energy in self._samples[1:] if at <= ended]
        if any(later < earlier for (_, earlier), (_, later) in zip(self._samples, self._samples[1:])):
            raise MeasureError("the energy counter fell: the driver was restarted, or it is not to be believed")
        self.time_s = took / self.steps
        if len(ticks) < 2:
            if took > _FROZEN_S:
                raise MeasureError(f"the energy counter stood still for {took:.1f} s: it is not to be believed")
            self.flags += ["no_energy", "short_window"]
            return
        (first, before), (last, after) = ticks[0], ticks[-1]
        self.power_w = (after - before) / (last - first)
        self.energy_j = self.power_w * self.time_s
        if len(ticks) < _LEAST_TICKS:
            self.flags.append("few_ticks")
        if last - first < _LEAST_WINDOW_S:
            self.flags.append("short_window")
        self.flags += [name for bit, name in _REASONS if self._reasons & bit]

    def to_dict(self) -> Dict[str, Any]:
        """Measured, foreseen, their ratio (measured over foreseen) and whether the interval holds what was measured."""
        result: Dict[str, Any] = {"gpu": self.gpu, "steps": self.steps, "flags": list(self.flags)}
        for name in ("time_s", "power_w", "energy_j"):
            measured = getattr(self, name)
            entry: Dict[str, Any] = {"measured": measured}
            if self.foreseen is not None:
                value = getattr(self.foreseen, name)
                entry["foreseen"] = value
                if measured is not None:
                    low, high = getattr(self.foreseen, name + "_p05"), getattr(self.foreseen, name + "_p95")
                    entry["ratio"], entry["within_interval"] = measured / value, low <= measured <= high
            result[name] = entry
        return result

    def __str__(self) -> str:
        lines = [f"{self.gpu}: {self.steps} steps" + (f" ({', '.join(self.flags)})" if self.flags else "")]
        for name, entry in self.to_dict().items():
            if isinstance(entry, dict):
                measured = "unknown" if entry["measured"] is None else f"{entry['measured']:.4g}"
                beside = f", foreseen {entry['foreseen']:.4g}" if "foreseen" in entry else ""
                ratio = f", ratio {entry['ratio']:.3f}" if "ratio" in entry else ""
                lines.append(f"{name}: measured {measured}{beside}{ratio}")
        return "\n".join(lines)
