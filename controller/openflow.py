"""Say a change in OpenFlow 1.3: flows and groups become messages, by os-ken's parser.

Every flow carries a cookie that tells who installed it: a constant of ours and the generation of the controller. So a successor can
delete what its predecessors left, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from struct import Struct
from typing import Any

from os_ken.ofproto import ofproto_v1_3 as openflow
from os_ken.ofproto import ofproto_v1_3_parser as parser

from controller.flows import ArpReply, Group, Match, Output
from controller.installation import Change

COOKIE = 0x6E657473  # "nets", in the upper half
_WHOLE_COOKIE = (1 << 64) - 1
_ETHERTYPE_IPV4 = 0x0800
_ETHERTYPE_ARP = 0x0806
_PROTOCOL_TCP = 6
_ARP_REQUEST = 1
_ARP_REPLY = 2
_MAC_BITS = 48
_IPV4_BITS = 32
_MATCH_HEADER = Struct("!HH")  # kind, length without padding

Message = Any  # os-ken's messages are not typed


def cookie(generation: int) -> int:
    """Return the cookie of the flows that a generation installs."""
    return COOKIE << 32 | generation


def messages(datapath: Any, change: Change, generation: int, takes_over: bool) -> Iterator[Message]:
    """Yield what to send to a switch; the last message is the barrier whose reply acknowledges everything.

    A controller that takes over a switch deletes what each earlier generation left; its own flows have replaced what they share.
    """
    for group in change.new_groups:
        yield _group_mod(datapath, openflow.OFPGC_ADD, group)
    for group in change.changed_groups:
        yield _group_mod(datapath, openflow.OFPGC_MODIFY, group)
    for flow in change.flows:
        yield _flow_mod(datapath, openflow.OFPFC_ADD, flow.match, cookie=cookie(generation), instructions=_instructions(flow.action))
    yield parser.OFPBarrierRequest(datapath)
    deletions = list(_deletions(datapath, change, range(generation if takes_over else 0)))
    if deletions:
        yield from deletions
        yield parser.OFPBarrierRequest(datapath)


def questions_on_joining(datapath: Any) -> Iterator[Message]:
    """Yield what to ask a switch that has connected: which groups it holds already."""
    yield parser.OFPGroupDescStatsRequest(datapath, 0)


def questions_on_counters(datapath: Any) -> Iterator[Message]:
    """Yield what to ask a switch for its counters: of all ports, then of all queues."""
    yield parser.OFPPortStatsRequest(datapath, 0, openflow.OFPP_ANY)
    yield parser.OFPQueueStatsRequest(datapath, 0, openflow.OFPP_ANY, openflow.OFPQ_ALL)


def send(datapath: Any, to_send: Iterable[Message]) -> int:
    """Send messages in one write; return the number of the last one."""
    buffers = []
    number = 0
    for message in to_send:
        number = datapath.set_xid(message)
        message.serialize()
        buffers.append(message.buf)
    datapath.send(b"".join(buffers))
    return number


def is_up(port: Any) -> bool:
    """Tell whether a described port can carry frames."""
    return not (port.config & openflow.OFPPC_PORT_DOWN or port.state & openflow.OFPPS_LINK_DOWN)


def is_complete(reply: Any) -> bool:
    """Tell whether a reply is the last part of its answer."""
    return not reply.flags & openflow.OFPMPF_REPLY_MORE


def describe_error(error: Any) -> str:
    """Name what a switch complains about."""
    kind = openflow.ofp_error_type_to_str(error.type)
    if error.type == openflow.OFPET_EXPERIMENTER:
        return f"{kind}, {error.exp_type}"
    return f"{kind}, {openflow.ofp_error_code_to_str(error.type, error.code)}"


def _deletions(datapath: Any, change: Change, generations: Iterable[int]) -> Iterator[Message]:
    for match in change.obsolete_flows:
        yield _flow_mod(datapath, openflow.OFPFC_DELETE_STRICT, match)
    for generation in generations:
        yield parser.OFPFlowMod(
            datapath,
            cookie=cookie(generation),
            cookie_mask=_WHOLE_COOKIE,
            table_id=openflow.OFPTT_ALL,
            command=openflow.OFPFC_DELETE,
            out_port=openflow.OFPP_ANY,
            out_group=openflow.OFPG_ANY,
        )
    for number in change.obsolete_groups:  # last: a group takes the flows that lead to it with it
        yield parser.OFPGroupMod(datapath, openflow.OFPGC_DELETE, openflow.OFPGT_SELECT, number)


def _flow_mod(datapath: Any, command: int, match: Match, **more: Any) -> Message:
    return parser.OFPFlowMod(
        datapath,
        command=command,
        priority=match.priority,
        out_port=openflow.OFPP_ANY,
        out_group=openflow.OFPG_ANY,
        match=_Match(match),
        **more,
    )


class _Match(parser.OFPMatch):  # type: ignore[misc]
    """A match put together from fields that were encoded before: os-ken encodes each several times over, and there are thousands."""

    def __init__(self, match: Match) -> None:
        self._encoded = b"".join(_field(name, value) for name, value in _fields(match))

    def serialize(self, buf: bytearray, offset: int) -> int:
        length = _MATCH_HEADER.size + len(self._encoded)
        padding = -length % 8
        buf[offset:] = _MATCH_HEADER.pack(openflow.OFPMT_OXM, length) + self._encoded + bytes(padding)
        return length + padding


def _fields(match: Match) -> Iterator[tuple[str, Any]]:
    """Yield what a match tests, in OpenFlow's order: a field comes after those it depends on."""
    if match.in_port is not None:
        yield "in_port", match.in_port
    if match.eth_dst is not None:
        yield "eth_dst", match.eth_dst
    if match.eth_src is not None:
        yield "eth_src", match.eth_src
    if match.tcp_only:
        yield from (("eth_type", _ETHERTYPE_IPV4), ("ip_proto", _PROTOCOL_TCP))
    if match.arp_target is not None:
        yield from (("eth_type", _ETHERTYPE_ARP), ("arp_op", _ARP_REQUEST), ("arp_tpa", match.arp_target))


@cache
def _field(name: str, value: Any) -> bytes:
    encoded = bytearray()
    openflow.oxm_serialize(*openflow.oxm_from_user(name, value), encoded, 0)
    return bytes(encoded)


@cache
def _instructions(action: Output | Group | ArpReply) -> tuple[Any, ...]:
    return (parser.OFPInstructionActions(openflow.OFPIT_APPLY_ACTIONS, _actions(action)),)


def _actions(action: Output | Group | ArpReply) -> list[Any]:
    if isinstance(action, Output):
        return [parser.OFPActionOutput(action.port)]
    if isinstance(action, Group):
        return [parser.OFPActionGroup(action.number)]
    # The question becomes the answer: whoever asked is asked no more, and the host that was asked for seems to speak.
    return [
        parser.NXActionRegMove(src_field="eth_src", dst_field="eth_dst", n_bits=_MAC_BITS),
        parser.OFPActionSetField(eth_src=action.mac),
        parser.OFPActionSetField(arp_op=_ARP_REPLY),
        parser.NXActionRegMove(src_field="arp_sha", dst_field="arp_tha", n_bits=_MAC_BITS),
        parser.NXActionRegMove(src_field="arp_spa", dst_field="arp_tpa", n_bits=_IPV4_BITS),
        parser.OFPActionSetField(arp_sha=action.mac),
        parser.OFPActionSetField(arp_spa=action.ip),
        parser.OFPActionOutput(openflow.OFPP_IN_PORT),
    ]


def _group_mod(datapath: Any, command: int, group: Group) -> Message:
    buckets = [parser.OFPBucket(weight=1, watch_port=port, actions=[parser.OFPActionOutput(port)]) for port in group.ports]
    return parser.OFPGroupMod(datapath, command, openflow.OFPGT_SELECT, group.number, buckets)
