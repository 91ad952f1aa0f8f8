"""GET /metrics: the table of metrics and the histograms in Prometheus's text format.

Runs on the event loop; reads the engine's counters without waiting for it. If there are several models, the lines about
one have its name as a label.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from llamad.api.native.fleet_metrics import FLEET
from llamad.api.native.metrics_table import SECTIONS, Metric, ModelSection, Value
from llamad.api.native.snapshot import Labels, Snapshot
from llamad.api.request.errors import ApiError
from llamad.api.service.many_models import ManyModels
from llamad.api.service.model_table import ModelTable
from llamad.base.histogram import Histogram
from llamad.http.exchange import Exchange
from llamad.http.request import Response

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def _line(name: str, labels: Labels, value: str) -> str:
    shown = ",".join(f'{label}="{text.translate(_ESCAPES)}"' for label, text in labels)
    return f"{name}{{{shown}}} {value}" if labels else f"{name} {value}"


def _head(name: str, help: str, kind: str) -> list[str]:
    return [f"# HELP {name} {help}", f"# TYPE {name} {kind}"]


def _lines(metric: Metric[Any], values: Iterable[tuple[Labels, Value]]) -> list[str]:
    """Return a metric's lines, with the values of each model under its labels; there are none if it is a gauge without
    values."""
    lines: list[str] = []
    for model, value in values:
        for labels, one in (value if isinstance(value, Mapping) else {(): value}).items():
            text = f"{one:.13g}" if isinstance(one, float) else str(one)
            lines.append(_line(metric.name, model + labels, text))
    return _head(metric.name, metric.help, metric.kind) + lines if lines or metric.kind != "gauge" else []


def _histogram_lines(histograms: Iterable[tuple[Labels, Histogram]]) -> list[str]:
    """Return the lines of one histogram of each model."""
    lines: list[str] = []
    for model, one in histograms:
        lines = lines or _head(one.name, one.help, "histogram")
        lines += [_line(name, model + labels, value) for name, labels, value in one.samples()]
    return lines


def handle(models: ModelTable, exchange: Exchange) -> None:
    """GET /metrics."""
    service = models.service
    if not service.settings.endpoint_metrics:
        raise ApiError(501, "This server does not support metrics endpoint. Start it with `--metrics`")
    has_names = models.is_router or len(models) > 1
    snapshots = [((("model", one.name),) if has_names else (), Snapshot(one)) for one in models]
    # Variants of a model share one engine, whose counters must not be added twice.
    firsts = {one.host: one for _, one in reversed(snapshots)}
    lines: list[str] = []
    for section in SECTIONS:
        if isinstance(section, ModelSection):
            there = [
                (labels, one)
                for labels, one in snapshots
                if firsts[one.host] is one and section.is_there(one.served)
            ]
            for metric in section.metrics if there else ():
                lines += _lines(metric, [(labels, metric.read(one)) for labels, one in there])
        elif section.is_there(service):
            for shared in section.metrics:
                lines += _lines(shared, [((), shared.read(service))])
    for histogram in service.metrics.histograms:
        lines += _histogram_lines([((), histogram)])
    if isinstance(models, ManyModels):
        scheduler = models.fleet.scheduler
        for fleet_metric in FLEET:
            lines += _lines(fleet_metric, [((), fleet_metric.read(scheduler))])
        lines += _histogram_lines([((), scheduler.counters.waits)])
    for several in zip(*(one.served.metrics.histograms for _, one in snapshots), strict=True):
        lines += _histogram_lines(zip((labels for labels, _ in snapshots), several, strict=True))
    text = "\n".join(lines) + "\n"
    started = ("Process-Start-Time-Unix", str(service.t_created))
    exchange.send(
        Response(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8", headers=(started,))
    )
