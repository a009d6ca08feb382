"""What a run's containers are made from, and how they are known again."""

from __future__ import annotations

import json

import pytest
from docker.errors import APIError, DockerException, NotFound

from testbed.containers import order, removal
from testbed.containers.engine import EngineError
from testbed.containers.identity import PYTHON_LABEL, SOURCE_LABEL, python_version, source_digest
from testbed.containers.removal import HOST_LABEL, OWNER_LABEL, cleared, reap, remove
from testbed.processes import this_process
from testbed.spec import SpecError
from testbed.spec.loading import from_mapping
from testbed.spec.models import ContainerHosts
from workloads.datasets import fashion_mnist

EXPERIMENT = {
    "name": "boxed",
    "topology": {"kind": "star", "workers": 2, "link": {"rate": "10mbit"}},
    "workload": {"kind": "replay", "model": "small_cnn", "compute": "1ms", "budget": {"steps": 1}},
    "schemes": ["none"],
}


class PretendedEngine:
    """Has containers, and remembers which were removed."""

    def __init__(self, containers=(), fault: Exception | None = None, later=(), look: int = 2) -> None:
        self._containers, self.fault, self.removed, self.waited = list(containers), fault, [], []
        self._later, self._look, self.looks = list(later), look, 0  # those that it is still making are there from this look on

    def containers(self, all, filters):
        self.looks += 1
        there = self._containers + (self._later if self.looks >= self._look else [])
        name, _, value = filters["label"].partition("=")
        wanted = [one for one in there if name in one["Labels"] and (not value or one["Labels"][name] == value)]
        return [one for one in wanted if one["Id"] not in self.removed]

    def remove_container(self, container, force, v):
        if self.fault:
            raise self.fault
        self.removed.append(container)

    def wait(self, container, timeout, condition):
        assert timeout > 0
        self.waited.append((container, condition))

    def close(self):
        pass


@pytest.fixture
def pauses(monkeypatch):
    """Return the pauses between looks, none of which is made."""
    made: list[float] = []
    monkeypatch.setattr(removal.time, "sleep", made.append)
    return made


def response(status: int):
    class Response:
        status_code = status

    return Response()


def test_hosts_of_an_experiment_file():
    hosts = from_mapping({**EXPERIMENT, "hosts": {"kind": "container", "memory": "2GB", "cpus": 0.5, "gpus": 1}}).hosts
    assert (hosts.image, hosts.memory_bytes, hosts.cpus, hosts.gpus) == ("netsense-worker", 2_000_000_000, 0.5, 1)


@pytest.mark.parametrize(
    ("hosts", "words"),
    [
        ({"kind": "container", "imgae": "x"}, "did you mean 'image'"),
        ({"kind": "container", "image": "no spaces allowed"}, "image"),
        ({"kind": "container", "image": "netsense-worker:"}, "image"),
        ({"kind": "container", "image": "a:b:c"}, "image"),
        ({"kind": "container", "memory": "1kB"}, "memory"),
        ({"kind": "container", "gpus": -1}, "gpus"),
        ({"kind": "process", "gpus": 1}, "gpus"),
    ],
)
def test_what_cannot_be_meant_is_refused(hosts, words):
    with pytest.raises(SpecError, match=words):
        from_mapping({**EXPERIMENT, "hosts": hosts})


class GoingEngine:
    """Is there, and away when it is asked for something."""

    def __init__(self, at: str, **answers) -> None:
        self._at, self._answers = at, {"close": None, **answers}

    def __getattr__(self, name):
        def ask(*_, **__):
            if name == self._at:
                raise ConnectionError("aborted")
            return self._answers[name]

        return ask


LABELS = {PYTHON_LABEL: python_version(), SOURCE_LABEL: source_digest()}
ANSWERS = {
    "info": {"ServerVersion": "28.1", "SecurityOptions": ["name=seccomp,profile=default"]},
    "inspect_image": {"Id": "sha256:1", "Size": 9e8, "Config": {"Labels": LABELS}},
    "version": {"Version": "28.1"},
}
GOES_AWAY = r"the engine at .* does not do what it is asked \(aborted\): see what it says"
HOSTS = ContainerHosts(kind="container")


@pytest.mark.parametrize("at", ["info", "inspect_image", "version"])
def test_an_engine_that_goes_away_while_a_run_is_planned_is_told_in_a_sentence(monkeypatch, at):
    monkeypatch.setattr(order, "connect", lambda: GoingEngine(at, **ANSWERS))
    with pytest.raises(EngineError, match=f"^{GOES_AWAY}"):
        order.order(HOSTS, 2, {"kind": "replay"})
    assert [said.startswith("hosts: the engine at") for said in order.problems([HOSTS])] == [True]


def test_an_order_is_of_this_process_and_of_the_image_by_its_identity(monkeypatch):
    monkeypatch.setattr(order, "connect", lambda: GoingEngine("never", **ANSWERS))
    made = order.order(HOSTS, 2, {"kind": "replay"})
    assert (made.image, made.name, made.engine, made.owner) == ("sha256:1", "netsense-worker", "28.1", this_process())


def test_no_order_is_given_to_a_rootless_engine(monkeypatch):
    rootless = {**ANSWERS, "info": {"SecurityOptions": ["name=rootless"]}}
    monkeypatch.setattr(order, "connect", lambda: GoingEngine("never", **rootless))
    with pytest.raises(EngineError, match=r"is rootless, .*: have DOCKER_HOST name the system's"):
        order.order(HOSTS, 2, {"kind": "replay"})


@pytest.mark.parametrize("image", ["localhost:5000/mine/worker:v1.2", "netsense-worker:A_1", f"worker@sha256:{'0' * 64}"])
def test_every_name_that_an_image_can_have_is_taken(image):
    assert from_mapping({**EXPERIMENT, "hosts": {"kind": "container", "image": image}}).hosts.image == image


def test_without_what_tells_of_gpus_the_refusal_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError, match=r"there is no nvidia-smi .* leave gpus out"):
        order._gpus()
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho no devices were found\nexit 6\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    with pytest.raises(EngineError, match=r"nvidia-smi finds none \(no devices were found\)"):
        order._gpus()


def test_gpus_are_dealt_out_in_turn_and_shared_where_there_are_too_few():
    assert order.shares(0, 2, []) == [[], []]
    assert order.shares(2, 2, ["0", "1", "2", "3"]) == [["0", "1"], ["2", "3"]]
    assert order.shares(1, 3, ["0", "1"]) == [["0"], ["1"], ["0"]]
    with pytest.raises(EngineError, match="this machine has 1: ask for fewer"):
        order.shares(2, 1, ["0"])


def test_the_data_a_worker_trains_on_is_what_it_may_read(monkeypatch, tmp_path):
    monkeypatch.setattr(fashion_mnist, "find_folder", lambda given: tmp_path)
    assert order._data({"kind": "replay"}) == {}
    assert order._data({"kind": "train", "data_dir": None}) == {str(tmp_path): str(fashion_mnist.FOLDER)}
    monkeypatch.chdir(tmp_path)
    work = order.data_dir_of({"kind": "train", "data_dir": "cifar"})
    assert order._data(work) == {str(tmp_path / "cifar"): str(tmp_path / "cifar")}


def container(identity: str, owner: object, **labels: str):
    return {"Id": identity, "Labels": {OWNER_LABEL: owner if isinstance(owner, str) else json.dumps(owner), HOST_LABEL: "h1", **labels}}


def test_only_containers_whose_run_is_gone_are_reaped(monkeypatch, pauses):
    dead = {**this_process(), "started": 1}
    pretended = PretendedEngine([container("dead", dead), container("alive", this_process()), container("other", "not ours")])
    pretended._containers += [container("list", "[1]"), container("number", "7")]
    pretended._containers.append(container("elsewhere", {**dead, "pid_namespace": 1}))
    pretended._containers.append({"Id": "foreign", "Labels": {}})
    monkeypatch.setattr(removal, "connect", lambda: pretended)
    assert len(list(reap())) == 1
    assert pretended.removed == ["dead"]


def test_without_an_engine_there_is_nothing_to_reap(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    assert list(reap()) == []


def test_an_engine_that_may_not_be_asked_is_told_by_the_reaper(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2375")
    with pytest.raises(EngineError, match="name a unix:// socket"):
        list(reap())


def test_an_engine_that_goes_away_is_told_by_the_reaper_in_a_sentence(monkeypatch):
    pretended = PretendedEngine([container("dead", {**this_process(), "started": 1})], fault=ConnectionError("aborted"))
    monkeypatch.setattr(removal, "connect", lambda: pretended)
    with pytest.raises(EngineError, match=r"^the engine at .* does not do what it is asked \(aborted\): see what it says"):
        list(reap())


@pytest.mark.parametrize("look", [2, 3, 4, 6])
def test_what_an_engine_was_still_making_when_its_run_was_killed_is_reaped_too_however_slow_it_is(monkeypatch, pauses, look):
    dead = {**this_process(), "started": 1}
    pretended = PretendedEngine([container("first", dead)], later=[container("second", dead)], look=look)
    monkeypatch.setattr(removal, "connect", lambda: pretended)
    assert len(list(reap())) == 2
    assert pretended.removed == ["first", "second"]
    assert pretended.looks == look + removal.LOOKS_AFTER_SOME
    assert sum(pauses[-(removal.LOOKS_AFTER_SOME - 1) :]) == 2.0  # after the last find


def test_where_nothing_is_found_nobody_waits_for_a_slow_engine(monkeypatch, pauses):
    pretended = PretendedEngine([container("alive", this_process())])
    monkeypatch.setattr(removal, "connect", lambda: pretended)
    assert list(reap()) == []
    assert pauses == [removal.AGAIN_S]


def test_an_orderly_end_is_not_waited_after(monkeypatch, pauses):
    pretended = PretendedEngine([container("mine", this_process(), **{removal.RUN_LABEL: "mine"})])
    monkeypatch.setattr(removal, "connect", lambda: pretended)
    with cleared("mine"):
        pass
    assert (pretended.removed, pauses) == (["mine"], [])


def test_what_an_engine_was_still_making_when_a_run_broke_off_goes_too(monkeypatch, pauses):
    pretended = PretendedEngine(later=[container("late", this_process(), **{removal.RUN_LABEL: "mine"})])
    monkeypatch.setattr(removal, "connect", lambda: pretended)
    with pytest.raises(KeyboardInterrupt), cleared("mine"):
        raise KeyboardInterrupt
    assert pretended.removed == ["late"]


def test_a_run_leaves_none_of_its_own_and_all_of_the_others(monkeypatch, pauses):
    mine, others = (container(name, this_process(), **{removal.RUN_LABEL: name}) for name in ("mine", "others"))
    pretended = PretendedEngine([mine, others])
    monkeypatch.setattr(removal, "connect", lambda: pretended)
    with pytest.raises(KeyboardInterrupt), cleared("mine"):
        raise KeyboardInterrupt
    assert pretended.removed == ["mine"]


def test_an_engine_that_is_gone_does_not_hide_why_a_run_ended(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    with pytest.raises(RuntimeError, match="the reason"), cleared("mine"):
        raise RuntimeError("the reason")


@pytest.mark.parametrize("fault", [ConnectionError("aborted"), APIError("worse"), DockerException("odd")])
def test_a_clean_up_that_fails_does_not_hide_why_a_run_ended(monkeypatch, fault):
    pretended = PretendedEngine([container("mine", this_process(), **{removal.RUN_LABEL: "mine"})], fault=fault)
    monkeypatch.setattr(removal, "connect", lambda: pretended)
    with pytest.raises(RuntimeError, match="the reason"), cleared("mine"):
        raise RuntimeError("the reason")


def test_a_container_that_is_gone_or_going_is_no_fault():
    remove(PretendedEngine(fault=NotFound("gone")), "a")
    going = PretendedEngine(fault=APIError("conflict", response(409)))
    remove(going, "a")
    assert going.waited == [("a", "removed")]
    with pytest.raises(APIError):
        remove(PretendedEngine(fault=APIError("worse", response(500))), "a")
