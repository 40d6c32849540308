"""`/api/v1/connectors`: Kafka Connect's connectors and tasks, from the workers' REST APIs."""

from django.http import HttpRequest
from ninja import Query, Router

from dashboard.api import cursors, schemas
from dashboard.api.engine_schemas import ConnectorOut
from dashboard.engines.queries import ConnectorCriteria, connectors_after
from dashboard.runtime.collector_names import ENGINES

router = Router(tags=["connectors"])


class ConnectorList(schemas.Listing):
    items: list[ConnectorOut]


class ConnectorFilters(schemas.ListFilters, ConnectorCriteria):
    """The query string of the list; `q` is a part of a connector's name or class."""


@router.get("", response=ConnectorList, summary="List connectors of Kafka Connect")
def list_connectors(request: HttpRequest, wanted: Query[ConnectorFilters]) -> dict[str, object]:
    """Connectors reported by the configured `[[connect]]` APIs, in the order in which they were first seen.

    An API that does not answer is also a gap with the scope `api:URL`.
    """
    place = cursors.read_number(wanted.cursor, "connectors") or 0
    connectors = connectors_after(wanted, place=place, limit=wanted.limit + 1)
    page = cursors.cut_page("connectors", connectors, wanted.limit, lambda connector: (connector.row.pk,))
    return schemas.list_answer(*page, wanted.cluster, ENGINES)
