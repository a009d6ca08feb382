"""Echo requests: their checksum is the Internet's (RFC 1071)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from testbed.emulation.ping import _request, checksum


def test_the_checksum_of_the_example_in_rfc_1071():
    assert checksum(bytes.fromhex("0001f203f4f5f6f7")) == 0x220D


def test_carries_are_added_back_until_none_is_left():
    assert checksum(b"\xff\xff" * 2 + b"\x00\x01") == 0xFFFE
    assert checksum(bytes(4)) == 0xFFFF


@given(st.binary(max_size=600).map(lambda data: data[: len(data) // 2 * 2]))
def test_data_followed_by_its_checksum_sums_to_zero(data):
    assert checksum(data + checksum(data).to_bytes(2, "big")) == 0


@given(st.integers(0, 0xFFFF), st.integers(0, 0xFFFF))
def test_an_echo_request_verifies_and_carries_its_numbers(identifier, number):
    request = _request(identifier, number)
    assert checksum(request) == 0
    assert request[:2] == b"\x08\x00"
    assert request[4:8] == identifier.to_bytes(2, "big") + number.to_bytes(2, "big")
    assert len(request) == 64
