"""Messages to switches, read back as a switch would."""

from __future__ import annotations

import pytest
from os_ken.ofproto import ofproto_protocol
from os_ken.ofproto import ofproto_v1_3 as ofp
from os_ken.ofproto import ofproto_v1_3_parser as parser
from os_ken.ofproto.ofproto_parser import header

from controller import openflow
from controller.flows import ArpReply, Flow, Group, Match, Output
from controller.installation import Change

FORWARD = Flow(Match(100, in_port=1, eth_src="02:00:00:00:00:01", eth_dst="02:00:00:00:00:02"), Output(3))
SPREAD = Flow(Match(200, eth_dst="02:00:00:00:00:02", tcp_only=True), Group(7, (2, 3)))
ANSWER = Flow(Match(400, arp_target="10.0.0.2"), ArpReply("02:00:00:00:00:02", "10.0.0.2"))


class Datapath(ofproto_protocol.ProtocolDesc):
    """A connection that keeps what is sent."""

    def __init__(self) -> None:
        super().__init__(ofp.OFP_VERSION)
        self.writes: list[bytes] = []
        self.xid = 0

    def set_xid(self, message) -> int:
        self.xid += 1
        message.set_xid(self.xid)
        return self.xid

    def send(self, data: bytes) -> None:
        self.writes.append(bytes(data))


@pytest.fixture
def datapath():
    return Datapath()


def read_back(message):
    """Serialise a flow mod and parse it."""
    message.serialize()
    return parser.OFPFlowMod.parser(message.datapath, ofp.OFP_VERSION, ofp.OFPT_FLOW_MOD, len(message.buf), 0, bytes(message.buf))


def told(datapath, change: Change, generation: int = 0, takes_over: bool = False):
    return list(openflow.messages(datapath, change, generation, takes_over))


def only_flow(datapath, flow: Flow):
    message, barrier = told(datapath, Change(flows=(flow,)), generation=3)
    assert isinstance(barrier, parser.OFPBarrierRequest)
    return read_back(message)


def actions(flow_mod):
    (instruction,) = flow_mod.instructions
    assert instruction.type == ofp.OFPIT_APPLY_ACTIONS
    return instruction.actions


def test_a_flow_of_a_path(datapath):
    flow_mod = only_flow(datapath, FORWARD)
    assert flow_mod.command == ofp.OFPFC_ADD and flow_mod.priority == 100
    assert dict(flow_mod.match.items()) == {"in_port": 1, "eth_src": "02:00:00:00:00:01", "eth_dst": "02:00:00:00:00:02"}
    (output,) = actions(flow_mod)
    assert output.port == 3


def test_flows_never_time_out_and_carry_the_cookie_of_their_generation(datapath):
    flow_mod = only_flow(datapath, FORWARD)
    assert (flow_mod.idle_timeout, flow_mod.hard_timeout) == (0, 0)
    assert flow_mod.cookie == openflow.cookie(3) == openflow.COOKIE << 32 | 3


def test_a_flow_to_a_group_takes_tcp_only(datapath):
    flow_mod = only_flow(datapath, SPREAD)
    assert dict(flow_mod.match.items()) == {"eth_type": 0x0800, "ip_proto": 6, "eth_dst": "02:00:00:00:00:02"}
    (action,) = actions(flow_mod)
    assert action.group_id == 7


def test_the_switch_answers_arp_itself(datapath):
    flow_mod = only_flow(datapath, ANSWER)
    assert dict(flow_mod.match.items()) == {"eth_type": 0x0806, "arp_op": 1, "arp_tpa": "10.0.0.2"}
    said = []
    for action in actions(flow_mod):
        if isinstance(action, parser.OFPActionSetField):
            said.append((action.key, action.value))
        elif isinstance(action, parser.NXActionRegMove):
            said.append((action.src_field, action.dst_field, action.n_bits))
        else:
            said.append(action.port)
    assert said == [
        ("eth_src", "eth_dst", 48),
        ("eth_src", "02:00:00:00:00:02"),
        ("arp_op", 2),
        ("arp_sha", "arp_tha", 48),
        ("arp_spa", "arp_tpa", 32),
        ("arp_sha", "02:00:00:00:00:02"),
        ("arp_spa", "10.0.0.2"),
        ofp.OFPP_IN_PORT,
    ]


def test_each_bucket_of_a_group_watches_its_port(datapath):
    add, change, _ = told(datapath, Change(new_groups=(Group(7, (2, 3)),), changed_groups=(Group(8, (4, 5)),)))
    assert (add.command, change.command) == (ofp.OFPGC_ADD, ofp.OFPGC_MODIFY)
    for message, ports in ((add, [2, 3]), (change, [4, 5])):
        message.serialize()
        assert message.type == ofp.OFPGT_SELECT
        assert [bucket.watch_port for bucket in message.buckets] == ports
        assert [action.port for bucket in message.buckets for action in bucket.actions] == ports
        assert {bucket.weight for bucket in message.buckets} == {1}


def test_what_is_new_is_there_before_what_is_old_is_deleted(datapath):
    change = Change((Group(7, (2, 3)),), (), (SPREAD,), obsolete_flows=(FORWARD.match,), obsolete_groups=(9,))
    kinds = [(type(message).__name__, getattr(message, "command", None)) for message in told(datapath, change)]
    assert kinds == [
        ("OFPGroupMod", ofp.OFPGC_ADD),
        ("OFPFlowMod", ofp.OFPFC_ADD),
        ("OFPBarrierRequest", None),
        ("OFPFlowMod", ofp.OFPFC_DELETE_STRICT),
        ("OFPGroupMod", ofp.OFPGC_DELETE),
        ("OFPBarrierRequest", None),
    ]


def test_a_flow_is_deleted_strictly(datapath):
    _, message, _ = told(datapath, Change(obsolete_flows=(FORWARD.match,)))
    flow_mod = read_back(message)
    assert flow_mod.command == ofp.OFPFC_DELETE_STRICT and flow_mod.priority == 100
    assert dict(flow_mod.match.items()) == {"in_port": 1, "eth_src": "02:00:00:00:00:01", "eth_dst": "02:00:00:00:00:02"}
    assert (flow_mod.out_port, flow_mod.out_group) == (ofp.OFPP_ANY, ofp.OFPG_ANY)
    assert not flow_mod.instructions


def test_a_successor_deletes_what_each_predecessor_left_and_nothing_else(datapath):
    *_, first, second, _ = told(datapath, Change(), generation=2, takes_over=True)
    for generation, message in enumerate((first, second)):
        flow_mod = read_back(message)
        assert flow_mod.command == ofp.OFPFC_DELETE
        assert (flow_mod.cookie, flow_mod.cookie_mask) == (openflow.cookie(generation), 0xFFFFFFFFFFFFFFFF)


@pytest.mark.parametrize(("generation", "takes_over"), [(0, True), (2, False)])
def test_without_predecessors_or_at_a_later_change_nothing_is_deleted_by_cookie(datapath, generation, takes_over):
    (barrier,) = told(datapath, Change(), generation, takes_over)
    assert isinstance(barrier, parser.OFPBarrierRequest)


def test_a_change_is_one_write_and_is_known_by_its_last_barrier(datapath):
    number = openflow.send(datapath, openflow.messages(datapath, Change(flows=(FORWARD, ANSWER)), 1, True))
    (written,) = datapath.writes
    types, numbers = [], []
    while written:
        _, kind, length, xid = header(written)
        types.append(kind)
        numbers.append(xid)
        written = written[length:]
    assert types == [ofp.OFPT_FLOW_MOD] * 2 + [ofp.OFPT_BARRIER_REQUEST, ofp.OFPT_FLOW_MOD, ofp.OFPT_BARRIER_REQUEST]
    assert numbers == [1, 2, 3, 4, 5] and number == 5


@pytest.mark.parametrize(
    ("config", "state", "up"),
    [(0, 0, True), (0, ofp.OFPPS_LIVE, True), (ofp.OFPPC_PORT_DOWN, 0, False), (0, ofp.OFPPS_LINK_DOWN, False)],
)
def test_a_port_is_up_if_it_is_switched_on_and_has_a_carrier(config, state, up):
    port = parser.OFPPort(1, "02:00:00:00:00:01", b"l1-eth1", config, state, 0, 0, 0, 0, 0, 0)
    assert openflow.is_up(port) is up


def test_errors_are_named(datapath):
    error = parser.OFPErrorMsg(datapath, ofp.OFPET_FLOW_MOD_FAILED, ofp.OFPFMFC_TABLE_FULL, b"")
    assert openflow.describe_error(error) == "OFPET_FLOW_MOD_FAILED(5), OFPFMFC_TABLE_FULL(1)"
    other = parser.OFPErrorMsg(datapath, ofp.OFPET_EXPERIMENTER, exp_type=3, experimenter=0x2320, data=b"")
    assert openflow.describe_error(other) == "OFPET_EXPERIMENTER(65535), 3"
