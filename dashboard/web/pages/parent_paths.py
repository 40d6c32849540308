"""Parent paths of pages: each redirects to what is below."""

from __future__ import annotations

from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_safe

from dashboard.web.rendering import View, signed_in


def _cluster_list(name: str) -> View[...]:
    """Return a view that redirects to the list page of a name: of one cluster, and of a topic if named."""

    def cluster_list(request: HttpRequest, cluster: str, topic: str = "") -> HttpResponse:
        wanted = {**request.GET.dict(), "cluster": cluster, **({"q": topic} if topic else {})}
        return HttpResponseRedirect(f"{reverse(name)}?{urlencode(wanted, safe=':')}")

    return signed_in(cluster_list)


transactions = _cluster_list("transactions")
partitions = _cluster_list("partitions")
groups = _cluster_list("groups")
queries = _cluster_list("queries")
flink_jobs = _cluster_list("flink-jobs")
recoveries = _cluster_list("recoveries")


@csrf_exempt
@require_safe
def api_docs(request: HttpRequest) -> HttpResponse:
    """Redirect the root of the API to its description, which everybody may read."""
    return redirect("api-1:openapi-view")
