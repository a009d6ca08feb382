"""The API without sockets: every answer as described, bad input told in a sentence, nothing that is asked breaks it."""

from __future__ import annotations

import json
from email.message import Message
from email.parser import Parser
from http.client import HTTPMessage
from urllib.parse import quote

import pytest
from api_source import HOSTS, PATH, SWITCHES, TRAFFIC_HOSTS, TRAINING, UPLINK, FakeRun
from hypothesis import example, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate
from prometheus_client.parser import text_string_to_metric_families

from controller import openapi
from controller.board import BoardError
from controller.handlers import ControlError, EventStream, Handlers, Refused, Request, Response, body_length, check_host
from controller.openapi import ENDPOINTS, JSON, Endpoint

PIN = json.dumps({"path": PATH}).encode()


@pytest.fixture
def source():
    return FakeRun()


@pytest.fixture
def handlers(source):
    return Handlers(source)


def get(handlers: Handlers, target: str) -> Response:
    answer = handlers.answer(Request("GET", target))
    assert isinstance(answer, Response)
    return answer


def post(handlers: Handlers, body: bytes, content_type: str = JSON) -> Response:
    answer = handlers.answer(Request("POST", "/paths", body, content_type))
    assert isinstance(answer, Response)
    return answer


def said(response: Response) -> str:
    content = json.loads(response.body)
    assert set(content) == {"error"}
    assert content["error"]
    assert "Traceback" not in content["error"]
    return content["error"]


def asked(endpoint: Endpoint) -> Request:
    """Return a good request for an endpoint."""
    target = endpoint.path.replace("{id}", quote(TRAINING, safe=""))
    return Request(endpoint.method, target, PIN if endpoint.body else b"", JSON if endpoint.body else "")


def described(endpoint: Endpoint, status: int) -> tuple[str, dict]:
    """Return the media type and the schema that the description gives for an answer."""
    description = openapi.description()
    content = description["paths"][endpoint.path][endpoint.method.lower()]["responses"][str(status)]["content"]
    ((media_type, media),) = content.items()
    return media_type, {**media["schema"], "components": description["components"]}


def check_as_described(endpoint: Endpoint, response: Response) -> None:
    media_type, schema = described(endpoint, response.status)
    assert response.content_type.partition(";")[0] == media_type
    content = json.loads(response.body) if media_type == JSON else response.body.decode()
    Draft202012Validator(schema).validate(content)


each_endpoint = pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda one: f"{one.method} {one.path}")


def test_the_description_is_valid_openapi():
    validate(openapi.description())


def test_every_endpoint_is_served_and_described(handlers):
    served = {(method, path) for path, methods in handlers._routes.items() for method in methods}
    assert served == {(one.method, one.path) for one in ENDPOINTS}
    assert json.loads(get(handlers, "/openapi.json").body) == openapi.description()
    assert set(json.loads(get(handlers, "/").body)["endpoints"]) == {f"{method} {path}" for method, path in served}


@each_endpoint
def test_every_answer_is_as_described(handlers, endpoint):
    answer = handlers.answer(asked(endpoint))
    if isinstance(answer, EventStream):
        answer = Response(200, answer.first, openapi.EVENT_STREAM)
    assert answer.status == 200
    check_as_described(endpoint, answer)


@each_endpoint
@pytest.mark.parametrize(
    ("fault", "status"),
    [(BoardError("the board is gone"), 503), (ControlError("the controller does not answer"), 503), (ZeroDivisionError("oh"), 500)],
)
def test_every_fault_is_told_as_described(source, handlers, endpoint, fault, status):
    source.fault = fault
    answer = handlers.answer(asked(endpoint))
    if endpoint.path == "/openapi.json":  # asks nothing of the run
        assert answer.status == 200
        return
    assert answer.status == status
    assert str(fault) in said(answer)
    check_as_described(endpoint, answer)


@each_endpoint
def test_every_refusal_is_as_described(handlers, endpoint):
    request = asked(endpoint)
    refused = handlers.answer(Request(request.method, request.target + "?no=1", request.body, request.content_type))
    assert refused.status == 400
    check_as_described(endpoint, refused)


def test_links_say_what_the_queues_do_and_null_where_nothing_is_known(handlers):
    read, never_read = json.loads(get(handlers, "/links").body)
    assert (read["id"], read["configured_bps"], read["sent_bps"], read["utilisation"]) == (TRAINING, 10e6, 8e6, 0.8)
    assert (read["backlog_bytes"], read["backlog_ms"], read["openflow"]["queue_tx_bytes"]) == (25_000, 20.0, 15)
    assert 0.25 <= read["age_s"] < 5
    assert (never_read["id"], never_read["utilisation"], never_read["age_s"], never_read["openflow"]) == (UPLINK, None, None, None)


@pytest.mark.parametrize("spelling", [TRAINING, quote(TRAINING, safe=""), quote(TRAINING)])
def test_a_link_is_found_by_its_name_however_encoded(handlers, spelling):
    assert json.loads(get(handlers, f"/links/{spelling}").body)["id"] == TRAINING


def test_metrics_have_the_numbers_with_labels_and_no_line_for_what_is_not_known(handlers):
    families = {family.name: family for family in text_string_to_metric_families(get(handlers, "/metrics").body.decode())}
    labels = {"link": "bottleneck", "source": "s1", "target": "s2", "queue": "training"}
    uplink = {"link": "access-h1", "source": "h1", "target": "s1", "queue": ""}

    def values(name: str) -> list[tuple[dict, float]]:
        return [(sample.labels, sample.value) for sample in families[name].samples]

    assert values("testbed_run_info") == [({"experiment": "quick", "run": "netsense"}, 1.0)]
    assert values("testbed_link_configured_rate_bps") == [(labels, 10e6), (uplink, 100e6)]
    assert values("testbed_link_rate_bps") == [(labels, 8e6)]
    assert values("testbed_link_utilisation_ratio") == [(labels, 0.8)]
    assert values("testbed_link_backlog_seconds") == [(labels, pytest.approx(0.02))]
    assert values("testbed_link_sent_bytes") == [(labels, 9e6)]
    assert values("testbed_link_dropped_packets") == [(labels, 7.0)]
    assert values("testbed_link_overlimits") == [(labels, 40.0)]
    assert values("testbed_openflow_queue_tx_bytes") == [(labels, 15.0)]
    assert families["testbed_link_sent_bytes"].type == "counter"
    assert families["testbed_link_backlog_bytes"].type == "gauge"


@pytest.mark.parametrize(
    ("query", "interval_s"), [("", 0.1), ("?interval_s=0.02", 0.02), ("?interval_s=60", 60.0), ("?interval_s=1e0", 1.0)]
)
def test_a_stream_has_the_interval_asked_for(handlers, query, interval_s):
    stream = handlers.answer(Request("GET", f"/stream{query}"))
    assert stream.interval_s == interval_s
    kind, data, *_ = stream.first.split(b"\n")
    assert kind == b"event: links"
    assert [link["id"] for link in json.loads(data.removeprefix(b"data: "))] == [TRAINING, UPLINK]
    assert stream.first.endswith(b"\n\n")


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/nothing", 404),
        ("/links/", 404),
        ("/links/nothing", 404),
        ("/links/{id}", 404),
        ("/links/..%2F..%2Fetc%2Fpasswd", 404),
        ("/../etc/passwd", 404),
        ("/links%00", 404),
        ("", 400),
        ("links", 400),
        ("*", 400),
        ("http://127.0.0.1/links", 400),
        ("/links/%zz", 400),
        ("/links/%", 400),
        ("/links/%ff", 400),
        ("/links?x=1", 400),
        ("/links?%zz", 400),
        ("/stream?interval_s=0.019", 400),
        ("/stream?interval_s=61", 400),
        ("/stream?interval_s=nan", 400),
        ("/stream?interval_s=inf", 400),
        ("/stream?interval_s=-1", 400),
        ("/stream?interval_s=soon", 400),
        ("/stream?interval_s=", 400),
        ("/stream?interval_s=1&interval_s=2", 400),
        ("/stream?interval=1", 400),
    ],
)
def test_a_bad_target_is_told(handlers, target, status):
    answer = get(handlers, target)
    assert answer.status == status
    said(answer)


@pytest.mark.parametrize(
    ("method", "target", "allow"),
    [
        ("POST", "/links", "GET, HEAD"),
        ("DELETE", f"/links/{TRAINING}", "GET, HEAD"),
        ("PUT", "/paths", "GET, HEAD, POST"),
        ("OPTIONS", "/paths", "GET, HEAD, POST"),
        ("get", "/links", "GET, HEAD"),
    ],
)
def test_another_method_is_told_which_there_are(handlers, method, target, allow):
    answer = handlers.answer(Request(method, target))
    assert (answer.status, answer.allow) == (405, allow)
    assert method in said(answer)


def test_head_is_answered_as_get(handlers):
    assert handlers.answer(Request("HEAD", "/paths")) == handlers.answer(Request("GET", "/paths"))


def test_a_path_is_pinned_and_the_paths_from_then_on_are_told(source, handlers):
    answer = post(handlers, PIN, "application/json; charset=utf-8")
    assert answer.status == 200
    assert source.pinned == [PATH]
    assert json.loads(answer.body) == source.paths()


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b"\xff", "JSON"),
        (b"[" * 60_000, "JSON"),
        (b"null", "body"),
        (b"[]", "body"),
        (b'"h1"', "body"),
        (b"{}", "path"),
        (b'{"path": "h1"}', "path"),
        (b'{"path": null}', "path"),
        (b'{"path": []}', "path"),
        (b'{"path": ["h1"]}', "path"),
        (b'{"path": ["h1", 2]}', "path.1"),
        (b'{"path": ["h1", ""]}', "path.1"),
        (b'{"path": [["h1"], "h2"]}', "path.0"),
        (b'{"path": {"h1": "h2"}}', "path"),
        (json.dumps({"path": ["h1"] * 300}).encode(), "path"),
        (json.dumps({"path": PATH, "switch": "s1"}).encode(), "switch"),
        (json.dumps({"path": ["h1", "s9", "h2"]}).encode(), "'s9'"),
        (json.dumps({"path": ["h1", "../../etc/passwd", "h2"]}).encode(), "passwd"),
    ],
)
def test_a_bad_path_is_told_and_never_reaches_the_controller(source, handlers, body, word):
    answer = post(handlers, body)
    assert answer.status == 400
    assert word in said(answer)
    assert len(said(answer)) < 600
    assert source.pinned == []


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/x-www-form-urlencoded"])
def test_a_path_that_is_not_sent_as_json_is_not_taken(source, handlers, content_type):
    answer = post(handlers, PIN, content_type)
    assert answer.status == 415
    assert "application/json" in said(answer)
    assert source.pinned == []


def test_the_controllers_objection_is_told_in_its_words(source, handlers):
    source.objection = "h1 and s2 are not joined by a link"
    answer = post(handlers, PIN)
    assert (answer.status, said(answer)) == (400, source.objection)


SEGMENTS = st.sampled_from(["links", "stream", "paths", "metrics", "topology", "%2F", "..", "%", "%ff", "?interval_s=", "1", "&", TRAINING])
TARGETS = st.one_of(st.text(), st.lists(SEGMENTS | st.text(max_size=5)).map(lambda parts: "/" + "/".join(parts)))
NAMES = st.sampled_from([*HOSTS, *TRAFFIC_HOSTS, *SWITCHES, "s9", "", "/etc/passwd"]) | st.text()
BODIES = st.one_of(
    st.binary(),
    st.recursive(st.none() | st.booleans() | st.floats() | NAMES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)).map(
        lambda content: json.dumps(content).encode()
    ),
    st.lists(NAMES).map(lambda path: json.dumps({"path": path}).encode()),
)


@given(st.sampled_from(["GET", "HEAD", "POST"]) | st.text(), TARGETS | st.just("/paths"), BODIES, st.sampled_from(["", JSON]) | st.text())
@example("POST", "/paths", b'{"path": ["\\ud800", "h1"]}', JSON)
def test_whatever_is_asked_is_answered(method, target, body, content_type):
    source = FakeRun()
    answer = Handlers(source).answer(Request(method, target, body, content_type))
    if isinstance(answer, Response):
        assert answer.status in {200, 400, 404, 405, 415}
        if answer.status != 200:
            said(answer)
    else:
        assert 0.02 <= answer.interval_s <= 60
    assert all(name in HOSTS + TRAFFIC_HOSTS + SWITCHES for path in source.pinned for name in path)


def headers(*lines: str) -> Message:
    return Parser(_class=HTTPMessage).parsestr("\r\n".join([*lines, "", ""]))


@pytest.mark.parametrize(
    ("method", "lines", "length"),
    [("GET", [], 0), ("POST", ["Content-Length: 0"], 0), ("POST", ["content-length: 65536"], 65536), ("GET", ["Content-Length: 3"], 3)],
)
def test_the_length_of_a_body_is_that_which_is_said(method, lines, length):
    assert body_length(method, headers(*lines)) == length


@pytest.mark.parametrize(
    ("method", "lines", "status"),
    [
        ("POST", [], 411),
        ("PUT", [], 411),
        ("POST", ["Transfer-Encoding: chunked"], 411),
        ("GET", ["Transfer-Encoding: chunked", "Content-Length: 3"], 411),
        ("POST", ["Content-Length: 65537"], 413),
        ("POST", ["Content-Length: " + "9" * 19], 400),
        ("POST", ["Content-Length: -1"], 400),
        ("POST", ["Content-Length: +1"], 400),
        ("POST", ["Content-Length: 1_0"], 400),
        ("POST", ["Content-Length: \u0661"], 400),
        ("POST", ["Content-Length:"], 400),
        ("POST", ["Content-Length: 3", "Content-Length: 4"], 400),
        ("GET", ["no header at all"], 400),
    ],
)
def test_a_length_that_is_not_plain_or_too_great_is_refused(method, lines, status):
    with pytest.raises(Refused) as refused:
        body_length(method, headers(*lines))
    assert refused.value.status == status


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LocalHost:9464", "127.0.0.1:80"])
def test_the_loopbacks_names_are_welcome(host):
    check_host(headers(f"Host: {host}"))


@pytest.mark.parametrize(
    "lines",
    [
        ["Host: evil.example"],
        ["Host: localhost.evil.example"],
        ["Host: 127.0.0.1.evil.example:80"],
        ["Host: evil@localhost"],
        ["Host:"],
        [],
    ],
)
def test_a_name_that_a_web_page_made_ours_is_refused(lines):
    with pytest.raises(Refused) as refused:
        check_host(headers(*lines))
    assert refused.value.status in {400, 403}
