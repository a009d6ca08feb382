"""What the API says: its messages as models, its endpoints as a table, and the OpenAPI 3.1 description made from both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import models_json_schema

VERSION = "1"
MAX_BODY_BYTES = 64 * 1024
LEAST_INTERVAL_S, MOST_INTERVAL_S, USUAL_INTERVAL_S = 0.02, 60.0, 0.1
JSON = "application/json"
EVENT_STREAM = "text/event-stream"
PLAIN_TEXT = "text/plain"

NodeName = Annotated[str, Field(min_length=1, max_length=64)]


class OpenFlow(BaseModel):
    """What the switch itself counted for the queue and its port, once a second. null: it does not count that."""

    mono_s: float = Field(description="when, by the machine's monotonic clock")
    port_tx_bytes: int | None
    port_tx_packets: int | None
    port_tx_dropped: int | None
    port_rx_bytes: int | None
    queue_tx_bytes: int | None
    queue_tx_packets: int | None
    queue_tx_errors: int | None


class Link(BaseModel):
    """One queue of one direction of a link, now. null: not known yet."""

    id: str = Field(description="name of the direction, and of the queue where it has several: bottleneck:s1->s2/training")
    link: str
    source: str
    target: str
    queue: str = Field(description="class of traffic; empty where the direction has one queue")
    configured_bps: float | None = Field(description="rate the queue is shaped to at this moment, L2 bits without FCS")
    sent_bps: float | None = Field(description="rate over about the last 100 ms")
    utilisation: float | None = Field(description="sent_bps / configured_bps")
    backlog_bytes: int | None = Field(description="bytes waiting")
    backlog_ms: float | None = Field(description="time they take to leave at the configured rate")
    queue_bytes: int | None = Field(description="limit of the queue")
    dropped_packets: int | None = Field(description="since the queue was made")
    drops_per_s: float | None = Field(description="over about the last 100 ms")
    overlimits: int | None = Field(description="times a packet had to wait for its turn, since the queue was made")
    age_s: float | None = Field(description="time since the queue was read")
    openflow: OpenFlow | None


class Cable(BaseModel):
    """A link between two nodes."""

    name: str
    a: str
    b: str
    bottleneck: bool


class Topology(BaseModel):
    """The network, and which of its links are down."""

    hosts: list[str] = Field(description="in order of rank: worker i runs on hosts[i]")
    traffic_hosts: list[str] = Field(description="hosts without a worker, for background traffic")
    switches: list[str]
    links: list[Cable]
    down: list[str] = Field(description="names of links that are down")


class PinRequest(BaseModel):
    """Send the traffic of a pair of hosts, both ways, along a path."""

    model_config = ConfigDict(extra="forbid", strict=True)

    path: list[NodeName] = Field(min_length=2, max_length=256, description="node names: a host, switches, a host")


class Failure(BaseModel):
    """Why a request was not done."""

    error: str


class Index(BaseModel):
    """Which run this is, and what may be asked."""

    experiment: str
    run: str
    endpoints: dict[str, str]


def reference(model: type[BaseModel]) -> dict[str, Any]:
    """Point at a model's schema."""
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def _list_of(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": schema}


PATHS_SCHEMA = _list_of(_list_of({"type": "string"}))
TEXT_SCHEMA = {"type": "string"}


@dataclass(frozen=True)
class Endpoint:
    """One thing to ask; `errors` beside those that any request may meet."""

    method: str
    path: str
    summary: str
    schema: dict[str, Any]
    media_type: str = JSON
    parameters: tuple[dict[str, Any], ...] = ()
    body: type[BaseModel] | None = None
    errors: tuple[int, ...] = ()


_LINK_ID = {"name": "id", "in": "path", "required": True, "description": "percent-encoded", "schema": {"type": "string"}}
_INTERVAL = {
    "name": "interval_s",
    "in": "query",
    "description": "time between two events",
    "schema": {"type": "number", "minimum": LEAST_INTERVAL_S, "maximum": MOST_INTERVAL_S, "default": USUAL_INTERVAL_S},
}

ENDPOINTS = (
    Endpoint("GET", "/", "the run and its endpoints", reference(Index)),
    Endpoint("GET", "/links", "every queue now", _list_of(reference(Link)), errors=(503,)),
    Endpoint("GET", "/links/{id}", "one queue now", reference(Link), parameters=(_LINK_ID,), errors=(503,)),
    Endpoint(
        "GET",
        "/stream",
        "server-sent events: `links` with what /links says, at last `end`, or `error`",
        TEXT_SCHEMA,
        EVENT_STREAM,
        (_INTERVAL,),
        errors=(503,),
    ),
    Endpoint("GET", "/metrics", "the same numbers and counters for Prometheus", TEXT_SCHEMA, PLAIN_TEXT, errors=(503,)),
    Endpoint("GET", "/topology", "hosts, switches, links, and which links are down", reference(Topology)),
    Endpoint("GET", "/paths", "the path of every pair of hosts", PATHS_SCHEMA),
    Endpoint("POST", "/paths", "pin a pair to a path; answers the paths from then on", PATHS_SCHEMA, body=PinRequest, errors=(415, 503)),
    Endpoint("GET", "/openapi.json", "this description", {"type": "object"}),
)

REASONS = {
    400: "the request is malformed, or names what the run does not have",
    403: "over TCP by the loopback: the Host header names another machine",
    404: "there is no such thing",
    405: "the method is not for this",
    408: "the request's body did not arrive in time",
    411: "a body needs a Content-Length",
    413: f"a body has at most {MAX_BODY_BYTES} bytes",
    415: "a body is JSON, and its Content-Type says so",
    500: "a fault of the testbed's own",
    503: "the telemetry or the controller does not answer, or too many are connected",
}
_ANY_REQUEST = (400, 403, 404, 405, 408, 411, 413, 500, 503)


def description() -> dict[str, Any]:
    """Return the OpenAPI description of every endpoint."""
    paths: dict[str, Any] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    models = (Link, Topology, PinRequest, Failure, Index)
    _, schemas = models_json_schema([(model, "validation") for model in models], ref_template="#/components/schemas/{model}")
    return {
        "openapi": "3.1.0",
        "info": {"title": "Queues and paths of a running experiment", "version": VERSION},
        "paths": paths,
        "components": {"schemas": schemas["$defs"]},
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    content = {endpoint.media_type: {"schema": endpoint.schema}}
    failures = {
        str(status): {"description": REASONS[status], "content": {JSON: {"schema": reference(Failure)}}}
        for status in sorted({*_ANY_REQUEST, *endpoint.errors})
    }
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "responses": {"200": {"description": endpoint.summary, "content": content}, **failures},
    }
    if endpoint.parameters:
        operation["parameters"] = list(endpoint.parameters)
    if endpoint.body is not None:
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": reference(endpoint.body)}}}
    return operation
