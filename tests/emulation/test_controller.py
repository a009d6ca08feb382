"""Every switch obeys the controller, and survives its death and that of a link."""

import pytest

from tests.emulation.scenarios import play
from tests.measuring import measured

pytestmark = pytest.mark.usefixtures("emulation")


def test_switches_answer_arp_flood_nothing_and_drop_what_no_rule_allows():
    seen = play("nothing_but_rules", room="controlled")
    assert seen["answered"] == {"h3": 5, "h4": 5}
    assert seen["h3_is_at"] == "02:00:00:00:00:03"
    assert seen["overheard"] == 0


def test_a_killed_controller_is_replaced_without_a_lost_packet():
    seen = play("controller_killed", room="controlled")
    assert seen["answered"] == 600
    assert seen["events"][0] == "controller_lost"
    assert seen["new_process"]
    assert seen["rules"] > 20
    assert seen["same_rules"]
    assert seen["stale_cookies"] == 0
    assert seen["rerouted"]  # the new one is really in charge


def test_a_link_that_goes_down_is_routed_around_and_used_again_when_it_is_back():
    seen = play("link_down", room="controlled", spines=2)
    assert "link_down" in seen["events"]
    assert seen["lost_s"] < 1.0
    assert seen["seconds"] < 1.0
    assert seen["unreachable"] == 0
    assert seen["events_back"] == ["link_up", "rerouted"]
    assert seen["original"] == seen["restored"] != seen["detour"]
    assert not any(name.startswith(seen["link"] + ":") for name in seen["detour"])
    assert seen["answered_again"] == 20


def test_without_another_path_the_pairs_are_told_unreachable_and_come_back_with_the_link():
    seen = play("link_down", room="controlled", spines=1)
    assert seen["unreachable"] == 4  # h1 and h2 with h3 and h4
    assert seen["lost_s"] > 0.1
    assert seen["answered_again"] == 20


@measured
def test_all_rules_of_twenty_switches_are_installed_and_acknowledged_within_two_seconds():
    seen = play("many_rules", room="controlled", leaves=16, spines=4, workers=32)
    assert seen["rules"] > 2500
    assert seen["seconds"] < 2.0


def test_select_groups_spread_tcp_connections_and_leave_the_rest_on_its_path():
    seen = play("select_groups", room="controlled", connections=256, spines=4)
    assert len(seen["shares"]) == 4
    assert max(seen["shares"].values()) < 0.35
    assert seen["pings"] == 20


def test_a_controller_that_hangs_is_replaced_and_the_run_goes_on():
    assert play("controller_hangs", room="live_runs") == {"code": 0, "replaced": True}


def test_a_sampler_that_dies_ends_the_run_with_its_reason():
    assert play("sampler_dies", room="live_runs") == {"fault": "testbed.emulation.sampler was killed by signal 9"}
