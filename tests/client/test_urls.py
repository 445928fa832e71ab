"""Which addresses may be called."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.security.urls import OutboundPolicy, Resolver, permitted
from tests.client.raw_server import run

GLOBAL = [
    "93.184.216.34",
    "1.1.1.1",
    "2606:4700:4700::1111",
    "64:ff9b::101:101",
    "::ffff:1.1.1.1",
    "2002:101:101::1",
]
PRIVATE = [
    "127.0.0.1",
    "127.8.8.8",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "::1",
    "fd12:3456::1",
    "::ffff:127.0.0.1",
    "::ffff:7f00:1",
    "64:ff9b::7f00:1",
    "64:ff9b::a00:1",
    "2002:7f00:1::1",
    "::127.0.0.1",
]
NEVER = [
    "0.0.0.0",
    "0.1.2.3",
    "169.254.169.254",
    "169.254.0.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "100.100.100.200",
    "168.63.129.16",
    "::",
    "fe80::1",
    "fe80::1%eth0",
    "ff02::1",
    "fd00:ec2::254",
    "::ffff:a9fe:a9fe",
    "::ffff:0.0.0.0",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "2002:a9fe:a9fe::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "::ffff:224.0.0.1",
    "::169.254.169.254",
    "nonsense",
    "",
]


@pytest.mark.parametrize("address", GLOBAL)
def test_global_addresses_pass(address: str) -> None:
    assert permitted(address)
    assert permitted(address, allow_private=True)


@pytest.mark.parametrize("address", PRIVATE)
def test_c050_private_addresses_in_any_form_pass_only_where_the_operator_allows_it(address: str) -> None:
    assert not permitted(address)
    assert permitted(address, allow_private=True)


@pytest.mark.parametrize("address", NEVER)
def test_c050_no_setting_lets_link_local_metadata_multicast_or_nothing_at_all_pass(address: str) -> None:
    assert not permitted(address)
    assert not permitted(address, allow_private=True)


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_inside_an_ipv6_one_is_judged_the_same(inner: object) -> None:
    number = int(inner)  # type: ignore[call-overload]
    for allow in (False, True):
        expected = permitted(str(inner), allow_private=allow)
        assert permitted(f"::ffff:{inner}", allow_private=allow) is expected
        assert permitted(f"64:ff9b::{inner}", allow_private=allow) is expected
        assert permitted(f"2002:{number >> 16:x}:{number & 0xFFFF:x}::1", allow_private=allow) is expected


# --- vetting -------------------------------------------------------------------------------------


def resolver(*answers: Sequence[str]) -> Resolver:
    left = list(answers)

    async def resolve(host: str) -> Sequence[str]:
        return left.pop(0) if len(left) > 1 else left[0]

    return resolve


def vet(url: str, *answers: Sequence[str], allow_private: bool = False) -> str:
    made = OutboundPolicy(allow_private=allow_private, resolver=resolver(*(answers or ([],))))
    return run(made.vet(url))


def refused(url: str, *answers: Sequence[str], allow_private: bool = False) -> bool:
    with pytest.raises(HandoffError) as caught:
        vet(url, *answers, allow_private=allow_private)
    return caught.value.code is Code.CARD_UNAVAILABLE


def test_the_address_of_a_name_is_returned() -> None:
    assert vet("https://agent.test/x", ["93.184.216.34"]) == "93.184.216.34"
    assert vet("https://agent.test:8443/x?y=1", ["2606:4700:4700::1111"]) == "2606:4700:4700::1111"


def test_a_literal_address_needs_no_lookup() -> None:
    assert vet("http://93.184.216.34:81/") == "93.184.216.34"
    assert vet("http://[2606:4700:4700::1111]/") == "2606:4700:4700::1111"


def test_c051_a_name_with_one_private_address_is_refused_whole() -> None:
    assert refused("http://agent.test/", ["93.184.216.34", "::1"])
    assert refused("http://agent.test/", ["127.0.0.1", "93.184.216.34"])
    assert refused("http://agent.test/", ["10.0.0.1", "169.254.169.254"], allow_private=True)


def test_a_name_without_an_address_is_refused() -> None:
    assert refused("http://agent.test/", [])


def test_ipv4_is_preferred() -> None:
    assert vet("http://localhost/", ["::1", "127.0.0.1"], allow_private=True) == "127.0.0.1"


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "gopher://agent.test/",
        "ftp://agent.test/",
        "agent.test",
        "//agent.test/",
        "http:///x",
        "http://",
        "http://user@agent.test/",
        "http://user:pw@agent.test/",
        "http://good.test\\@evil.test/",
        "http://agent.test:99999/",
        "http://agent.test:x/",
        "http://ag ent.test/",
        "http://agent.test/\r\nX: 1",
        "http://bücher.test/",
        "http://exa%6dple.test/",
        "http://[::1",
        "http://[fe80::1%25eth0]/",
        "http://agent.test/" + "x" * 2048,
        "",
    ],
)
def test_what_is_not_a_plain_http_url_is_refused(url: str) -> None:
    assert refused(url, ["93.184.216.34"], allow_private=True)


def test_c051_a_name_that_changes_its_address_is_vetted_again_and_kept_meanwhile() -> None:
    async def body() -> None:
        answers = (["93.184.216.34"], ["127.0.0.1"])
        forgets = OutboundPolicy(resolver=resolver(*answers), keep_s=0.0)
        assert await forgets.vet("http://agent.test/") == "93.184.216.34"
        with pytest.raises(HandoffError):
            await forgets.vet("http://agent.test/")
        keeps = OutboundPolicy(resolver=resolver(*answers), keep_s=60.0)
        for _ in range(3):
            assert await keeps.vet("http://agent.test/") == "93.184.216.34"

    run(body())


def test_many_calls_to_one_name_wait_for_one_lookup_and_one_that_gives_up_spoils_nothing() -> None:
    lookups = 0
    gate = asyncio.Event()

    async def slow(host: str) -> Sequence[str]:
        nonlocal lookups
        lookups += 1
        await gate.wait()
        return ["93.184.216.34"]

    async def body() -> None:
        policy = OutboundPolicy(resolver=slow)
        waiting = [asyncio.create_task(policy.vet("http://agent.test/")) for _ in range(50)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.sleep(0)
        gate.set()
        assert set(await asyncio.gather(*waiting[1:])) == {"93.184.216.34"}
        assert lookups == 1

    run(body())


def test_a_lookup_that_hangs_or_fails_is_a_refusal() -> None:
    async def hangs(host: str) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    async def fails(host: str) -> Sequence[str]:
        raise OSError

    async def body() -> None:
        for bad in (hangs, fails):
            policy = OutboundPolicy(resolver=bad, lookup_s=0.05)
            with pytest.raises(HandoffError):
                await policy.vet("http://agent.test/")

    run(body())


def test_the_system_knows_localhost() -> None:
    async def body() -> None:
        assert await OutboundPolicy(allow_private=True).vet("http://localhost/") == "127.0.0.1"
        with pytest.raises(HandoffError):
            await OutboundPolicy().vet("http://localhost/")
        with pytest.raises(HandoffError):
            await OutboundPolicy(allow_private=True).vet("http://nobody.invalid/")

    run(body())
