"""A booted network behaves as its description says, losses included."""

import pytest

from tests.emulation.scenarios import play

pytestmark = pytest.mark.usefixtures("emulation")


def test_a_full_queue_on_one_link_costs_another_link_no_packet_and_every_loss_is_counted():
    seen = play("full_queue_beside_pings")
    assert seen["pings_answered"] == 300
    assert seen["backlog_bytes"] > 300_000 - 2 * 1514  # the queue really was full
    assert seen["dropped"] > 0
    assert seen["sent"] == seen["received"] + seen["lost"]
    assert seen["lost"] / 2 < seen["dropped"] < 2 * seen["lost"]  # by full queues, and not elsewhere
    assert seen["socket_drops"] == 0


def test_jitter_keeps_the_order_and_loss_is_counted_by_the_line():
    seen = play("delay_with", jitter_s=0.008, loss=0.05)
    assert seen["ordered"]
    assert 0.03 < seen["lost"] / 2000 < 0.07
    assert seen["received"] + seen["lost"] == 2000
    assert seen["send_errors"] == 0


def test_the_delay_line_survives_an_interface_that_goes_down():
    seen = play("interface_down_and_up")
    assert seen["before"] == 20
    assert seen["during"] == 0
    assert seen["send_errors"] >= 1  # then the controller knows, and the switch sends nothing more that way
    assert seen["after"] == 20
