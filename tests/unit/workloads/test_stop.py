import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch.distributed as dist

from workloads.stop import EVALUATE, STOP, Announcer, FileNotices, Listener, Notices, StoreNotices

AHEAD = {"file": 2, "store": 3}


@pytest.fixture(params=["file", "store"])
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def store() -> dist.TCPStore:
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


@pytest.fixture
def look(kind: str, store: dist.TCPStore, tmp_path: Path) -> Callable[[], Notices]:
    """Return a rank's own way to the notices."""
    if kind == "file":
        return lambda: FileNotices(tmp_path)
    return lambda: StoreNotices(dist.PrefixStore(tmp_path.name, dist.TCPStore("127.0.0.1", store.port, is_master=False)))


def heard(listener: Listener, steps: int) -> dict[int, str]:
    """Return what a rank hears that is alone and looks before each step."""
    return {step: action for step in range(steps) if (action := listener.action_before(step))}


def test_an_instruction_is_for_the_first_step_that_nobody_can_have_started(kind: str, look: Callable[[], Notices]) -> None:
    announcer = Announcer(look())
    assert heard(Listener(look()), 4) == {}
    assert announcer.announce(3, EVALUATE) == 3 + AHEAD[kind]
    assert heard(Listener(look()), 9) == {3 + AHEAD[kind]: EVALUATE}


def test_a_newer_instruction_does_not_hide_one_not_yet_reached(kind: str, look: Callable[[], Notices]) -> None:
    announcer = Announcer(look())
    steps = announcer.announce(3, EVALUATE), announcer.announce(4, STOP)
    assert heard(Listener(look()), 12) == dict(zip(steps, (EVALUATE, STOP), strict=True))


def test_a_new_run_forgets_old_instructions(look: Callable[[], Notices]) -> None:
    Announcer(look()).announce(0, STOP)
    Announcer(look())
    assert heard(Listener(look()), 5) == {}


def test_a_rank_that_is_there_before_rank_0_hears_nothing(tmp_path: Path) -> None:
    assert Listener(FileNotices(tmp_path)).action_before(0) is None


def test_ranks_of_uneven_speed_act_before_the_same_steps(kind: str, look: Callable[[], Notices]) -> None:
    ranks, seen = 4, [[] for _ in range(4)]  # type: ignore[var-annotated]
    announcer = Announcer(look())
    exchange = threading.Barrier(ranks)  # as a collective: nobody finishes a step before all have contributed

    def work(rank: int) -> None:
        chance, step, listener = random.Random(rank), 0, Listener(look())
        while True:
            action = listener.action_before(step)
            if action:
                seen[rank].append((step, action))
            if action == STOP:
                return
            time.sleep(chance.random() * 2e-3)
            exchange.wait(timeout=20)
            time.sleep(chance.random() * 2e-3)  # some ranks notice later than others that the step is done
            if rank == 0 and step in (3, 4, 9, 30):
                announcer.announce(step, STOP if step == 30 else EVALUATE)
            step += 1

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    ahead = AHEAD[kind]
    assert seen == [[(3 + ahead, EVALUATE), (4 + ahead, EVALUATE), (9 + ahead, EVALUATE), (30 + ahead, STOP)]] * ranks
