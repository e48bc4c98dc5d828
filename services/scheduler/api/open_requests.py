"""The calls in progress, by the ids that their callers know."""

from collections import defaultdict

from scheduler.core.request import RequestId


class OpenRequests:
    """The engine's names of requests are kept beside the callers'. Tenants never see each other's."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str], dict[RequestId, RequestId]] = defaultdict(dict)

    def add(self, tenant: str, request_id: RequestId, engine_id: RequestId) -> None:
        """Names a request that was accepted."""
        self._calls[tenant, call_id_of(request_id)][request_id] = engine_id

    def remove(self, tenant: str, request_id: RequestId) -> None:
        """Forgets a request that ended."""
        call = (tenant, call_id_of(request_id))
        requests = self._calls.get(call, {})
        requests.pop(request_id, None)
        if not requests:
            self._calls.pop(call, None)

    def engine_ids(self, tenant: str, call_id: str) -> list[RequestId]:
        """The engine's names of a call's requests; none if no such call of this tenant is in progress."""
        return list(self._calls.get((tenant, call_id), {}).values())


def call_id_of(request_id: RequestId) -> str:
    """A request is named after its call, with the index of its prompt at the end."""
    return request_id.rpartition("-")[0]
