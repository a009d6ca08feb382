import json
import socket
import threading

import pytest

from testbed.emulation.ovsdb import Database, DatabaseError

UUID = "36bef046-7da7-43a5-905a-c17899216fcb"


class Server:
    """Answers each transaction with the next of the given results; notes what was asked."""

    def __init__(self, path: str, answers: list) -> None:
        self.asked: list = []
        self._answers = list(answers)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        peer, _ = self._listener.accept()
        pending = ""
        while received := peer.recv(7):  # in small pieces
            pending += received.decode()
            try:
                request, end = json.JSONDecoder().raw_decode(pending)
            except ValueError:
                continue
            pending = pending[end:]
            self.asked.append(request)
            if "method" in request:
                if not self._answers:
                    peer.close()
                    return
                for message in self._answers.pop(0):
                    text = json.dumps({"id": request["id"], **message}).encode()
                    peer.sendall(text[:5])
                    peer.sendall(text[5:])


@pytest.fixture
def database(tmp_path):
    def make(*answers):
        path = str(tmp_path / "db.sock")
        server = Server(path, list(answers))
        return server, Database(path)

    return make


ROWS = {("Queue", UUID): {"max-rate": "5000000"}}
COUNTED = [{"result": [{"count": 1}, {"count": 1}, {"rows": [{"next_cfg": 7}]}], "error": None}]
WAITED = [{"result": [{}], "error": None}]


def test_options_are_set_at_once_and_waited_for_until_vswitchd_has_them(database):
    server, one = database(COUNTED, WAITED)
    one.set_options(ROWS)
    change, wait = server.asked
    assert change["params"][0] == "Open_vSwitch"
    update = change["params"][1]
    assert (update["op"], update["table"], update["where"]) == ("update", "Queue", [["_uuid", "==", ["uuid", UUID]]])
    assert update["row"] == {"other_config": ["map", [["max-rate", "5000000"]]]}
    assert (wait["params"][1]["op"], wait["params"][1]["rows"]) == ("wait", [{"cur_cfg": 7}])


def test_the_servers_own_questions_are_answered_between(database):
    echo = {"id": "echo", "method": "echo", "params": ["hello"]}
    server, one = database([echo, *COUNTED], WAITED)
    one.set_options(ROWS)
    assert {"result": ["hello"], "error": None, "id": "echo"} in server.asked


@pytest.mark.parametrize(
    "answer",
    [
        {"result": [{"count": 0}, {"error": "constraint violation", "details": "no such row"}], "error": None},
        {"result": None, "error": "constraint violation"},
    ],
)
def test_a_refusal_is_an_error(database, answer):
    _, one = database([answer])
    with pytest.raises(DatabaseError, match=r"refused a change: .*constraint violation"):
        one.set_options(ROWS)


def test_a_server_that_goes_is_an_error(database):
    _, one = database()
    with pytest.raises((DatabaseError, ConnectionError)):
        one.set_options(ROWS)
