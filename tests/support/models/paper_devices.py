"""Devices and models on paper: they stand in for llama.cpp's measurements in tests of plans."""

from __future__ import annotations

import msgspec

from llamad.engine.fit.measure import Device, Shape
from llamad.engine.fit.usage import Usage, Use

MIB = 1 << 20
GIB = 1 << 30


class Paper:
    """Measures a model of 16 layers over devices that do not exist. All sizes are in GiB."""

    free: tuple[float, ...] = ()
    totals: tuple[float, ...] = ()
    layer = 0.25
    experts = 0.0  # of each layer

    def __init__(self, wanted, n_threads) -> None:
        self._wanted = wanted

    def devices(self):
        sizes = zip(self.free, self.totals, strict=True)
        return [
            Device(f"GPU{i}", "paper", int(free * GIB), int(total * GIB))
            for i, (free, total) in enumerate(sizes)
        ]

    def shape(self):
        return Shape(16, 65536, self.experts > 0)

    def usage(self, wanted):
        n_gpu = 17 if wanted.n_gpu_layers < 0 else min(17, wanted.n_gpu_layers)
        parts = wanted.tensor_split or (1.0,) * len(self.free)
        split = [n_gpu * part / sum(parts) for part in parts]
        on_host = len([one for one in wanted.override_tensor if "exps" in one.pattern])
        n_ctx = wanted.n_ctx or 65536
        layer = self.layer * GIB + self.experts * GIB + n_ctx * 8192
        devices = {
            f"GPU{i}": Use(weights=int(n * layer), compute=int(wanted.n_ubatch * MIB))
            for i, n in enumerate(split)
        }
        spare = int(on_host * self.experts * GIB)
        name = f"GPU{len(self.free) - 1}"
        devices[name] = msgspec.structs.replace(devices[name], weights=devices[name].weights - spare)
        return Usage(devices, Use(weights=int((17 - n_gpu) * layer) + spare, compute=MIB))

    def close(self) -> None:
        pass


def on_paper(
    free: tuple[float, ...], totals: tuple[float, ...] = (), layer: float = 0.25, experts: float = 0.0
) -> type[Paper]:
    """Return a class that can replace Measurer."""
    values = {"free": free, "totals": totals or free, "layer": layer, "experts": experts}
    return type("OnPaper", (Paper,), values)
