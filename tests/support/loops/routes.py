"""Every route that the program has, from its own table: with one model, and with many."""

from __future__ import annotations

import pytest

from llamad.api.app import Api
from llamad.api.service.auth import Keys
from llamad.api.service.many_models import ManyModels
from llamad.api.service.model_table import ModelTable
from llamad.api.service.served_model import ServedModel
from llamad.api.service.service import Service
from llamad.flags.parse import parse
from llamad.http.router import Route, Router
from llamad.models.fleet.effects import Limits
from llamad.models.fleet.fleet import Fleet
from llamad.models.fleet.scheduler import Scheduler
from llamad.models.fleet.shares import Shares
from llamad.models.host import Host
from llamad.models.spare_engine import SpareEngine


def routes() -> list[Route]:
    """Return every route of a daemon with one model, in the order in which the program adds them."""
    return _added(_one_model())


def all_routes() -> list[Route]:
    """Return the same, and those that only a daemon with many models has."""
    one, many = routes(), _added(_many_models())
    known = {(route.method, route.pattern) for route in one}
    return one + [route for route in many if (route.method, route.pattern) not in known]


def _added(models: ModelTable) -> list[Route]:
    added: list[Route] = []

    def add(router: Router, route: Route) -> Route:
        added.append(route)
        return route

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Router, "add", add)
        Api(models, Keys([]))
    models.close()
    return added


def _one_model() -> ModelTable:
    settings = parse(["-m", "model.gguf"], {}).settings
    service = Service(settings.daemon, "")
    return ModelTable(service, [ServedModel(service, Host(settings.model))])


def _many_models() -> ModelTable:
    parsed = parse([], {})
    service = Service(parsed.settings.daemon, "")
    fleet = Fleet(Scheduler(Limits()), Shares(0))
    return ManyModels(service, parsed, fleet, SpareEngine())
