"""Owns GET /metrics: the table of metrics and the histograms in Prometheus's text format.

Runs on the event loop; reads the engine's counters without waiting for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from llamad.api.native.metrics_table import SECTIONS, Labels, Metric, Snapshot
from llamad.api.request.errors import ApiError
from llamad.api.service.service import Service
from llamad.http.exchange import Exchange
from llamad.http.request import Response


def _lines(metric: Metric, snapshot: Snapshot) -> Iterable[str]:
    """Return a metric's lines; none if it has labels and no values."""
    value = metric.read(snapshot)
    values = value if isinstance(value, Mapping) else {(): value}
    if not values and metric.kind == "gauge":
        return
    yield f"# HELP {metric.name} {metric.help}"
    yield f"# TYPE {metric.name} {metric.kind}"
    for labels, one in values.items():
        yield (
            f"{metric.name}{_labels(labels)} {one:.13g}"
            if isinstance(one, float)
            else (f"{metric.name}{_labels(labels)} {one}")
        )


def _labels(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels) + "}" if labels else ""


def handle(service: Service, exchange: Exchange) -> None:
    """GET /metrics."""
    if not service.settings.endpoint_metrics:
        raise ApiError(501, "This server does not support metrics endpoint. Start it with `--metrics`")
    snapshot = Snapshot(service)
    lines: list[str] = []
    for section in SECTIONS:
        if section.is_there(service):
            for metric in section.metrics:
                lines += _lines(metric, snapshot)
    for histogram in service.metrics.histograms:
        lines += histogram.lines()
    text = "\n".join(lines) + "\n"
    started = ("Process-Start-Time-Unix", str(service.t_created))
    exchange.send(
        Response(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8", headers=(started,))
    )
