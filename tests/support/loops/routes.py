"""Every route that the program has, from its own table."""

from __future__ import annotations

import pytest

from llamad.api.app import Api
from llamad.api.service.auth import Keys
from llamad.api.service.model_table import ModelTable
from llamad.api.service.served_model import ServedModel
from llamad.api.service.service import Service
from llamad.flags.parse import parse
from llamad.http.router import Route, Router
from llamad.models.host import Host


def routes() -> list[Route]:
    """Return every route, in the order in which the program adds them."""
    added: list[Route] = []

    def add(router: Router, route: Route) -> Route:
        added.append(route)
        return route

    settings = parse(["-m", "model.gguf"], {}).settings
    service = Service(settings.daemon, "")
    models = ModelTable(service, [ServedModel(service, Host(settings.model))])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Router, "add", add)
        Api(models, Keys([]))
    models.close()
    return added
