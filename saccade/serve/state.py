"""State: the models of a running server, what it counts, and whether it accepts requests."""

from __future__ import annotations

from collections.abc import Iterator

from saccade.serve.bodies import Bodies
from saccade.serve.errors import ApiError
from saccade.serve.metrics import Gauge, Metrics
from saccade.serve.models import ServedModel

DRAINING, LOADING = "the server is stopping", "the models are being loaded"


class State:
    """Shared by all requests; belongs to the event loop."""

    def __init__(self) -> None:
        self.models: dict[str, ServedModel] = {}
        self.metrics, self.bodies = Metrics(), Bodies()
        self.loaded = self.draining = False
        self.in_flight = 0

    @property
    def status(self) -> str:
        """What /ready says; `failed`: a thread of a model has ended by an error, and the other models go on."""
        if self.draining or not self.loaded:
            return "draining" if self.draining else "loading"
        return "ready" if all(model.alive for model in self.models.values()) else "failed"

    @property
    def ready(self) -> bool:
        return self.status == "ready"

    @property
    def drained(self) -> bool:
        """Whether the server has been told to stop and nobody waits for a response."""
        return self.draining and not self.in_flight

    def check_ready(self) -> None:
        """Refuse a request while models are loaded and once the server is stopping."""
        if self.draining or not self.loaded:
            code, reason = ("draining", DRAINING) if self.draining else ("loading", LOADING)
            headers = {"retry-after": "5", "connection": "close"} if self.draining else {"retry-after": "5"}
            raise ApiError(503, f"{reason}; try again later", code=code, headers=headers)

    def add(self, models: dict[str, ServedModel]) -> None:
        """Accept requests for some models; called in the event loop."""
        self.models = models
        for model in models.values():
            model.start()
        self.loaded = True

    def gauges(self) -> Iterator[Gauge]:
        yield "saccade_ready", {}, self.ready
        yield "saccade_in_flight", {}, self.in_flight
        for model in self.models.values():
            yield from model.gauges()
