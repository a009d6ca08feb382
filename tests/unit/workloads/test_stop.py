import random
import threading
import time
from pathlib import Path

from workloads.stop import EVALUATE, STOP, Announcer, Listener


def test_an_instruction_is_for_the_step_two_after_the_finished_one(tmp_path: Path) -> None:
    listener = Listener(tmp_path)
    assert listener.action_before(0) is None
    announcer = Announcer(tmp_path)
    assert announcer.announce(3, EVALUATE) == 5
    assert [listener.action_before(s) for s in (3, 4, 5, 6)] == [None, None, EVALUATE, None]


def test_a_newer_instruction_does_not_hide_one_not_yet_reached(tmp_path: Path) -> None:
    announcer, listener = Announcer(tmp_path), Listener(tmp_path)
    announcer.announce(3, EVALUATE)
    announcer.announce(4, STOP)
    assert (listener.action_before(5), listener.action_before(6)) == (EVALUATE, STOP)


def test_a_new_run_forgets_old_instructions(tmp_path: Path) -> None:
    Announcer(tmp_path).announce(0, STOP)
    Announcer(tmp_path)
    assert Listener(tmp_path).action_before(2) is None


def test_ranks_of_uneven_speed_act_before_the_same_steps(tmp_path: Path) -> None:
    ranks, seen = 4, [[] for _ in range(4)]  # type: ignore[var-annotated]
    announcer = Announcer(tmp_path)
    exchange = threading.Barrier(ranks)  # as a collective: nobody finishes a step before all have contributed

    def work(rank: int) -> None:
        chance, step, listener = random.Random(rank), 0, Listener(tmp_path)
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
    assert seen == [[(5, EVALUATE), (6, EVALUATE), (11, EVALUATE), (32, STOP)]] * ranks
