"""Which quota counts for a connection, and who shares it (facts: security.md, section 9)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dohle.quotas.addresses import AddressRates
from dohle.quotas.entities import Bucket, Entity, Limit, QuotaTable
from dohle.quotas.meters import IDLE_MS, Meters

KEY = "producer_byte_rate"
#: Most specific first, with who shares each; "" is none, None the default.
PRECEDENCE = [
    (Entity("u", "c"), Bucket("u", "c")),
    (Entity("u", None), Bucket("u", "c")),
    (Entity("u", ""), Bucket("u", "")),
    (Entity(None, "c"), Bucket("u", "c")),
    (Entity(None, None), Bucket("u", "c")),
    (Entity(None, ""), Bucket("u", "")),
    (Entity("", "c"), Bucket("", "c")),
    (Entity("", None), Bucket("", "c")),
]


def table(*entities: Entity) -> QuotaTable:
    made = QuotaTable()
    for number, entity in enumerate(entities, 1):
        made.set(KEY, entity, number)
    return made


@given(st.sets(st.integers(0, len(PRECEDENCE) - 1)))
def test_the_most_specific_quota_counts_and_says_who_shares_it(there: set[int]) -> None:
    """9, Precedence, and Who shares one bucket: the level of the matching rule."""
    made = QuotaTable()
    for index in there:
        made.set(KEY, PRECEDENCE[index][0], index + 1)
    first = min(there, default=None)
    expected = None if first is None else Limit(PRECEDENCE[first][1], first + 1)
    assert made.find(KEY, "u", "c") == expected
    assert made.find("consumer_byte_rate", "u", "c") is None


@given(st.sets(st.integers(0, len(PRECEDENCE) - 1)))
def test_a_client_without_an_id_has_only_quotas_of_users(there: set[int]) -> None:
    """9, Precedence: an empty client id matches no client-id quota, not even the default."""
    made = QuotaTable()
    for index in there:
        made.set(KEY, PRECEDENCE[index][0], index + 1)
    first = min(there & {2, 5}, default=None)
    expected = None if first is None else Limit(Bucket("u", ""), first + 1)
    assert made.find(KEY, "u", "") == expected


def test_a_user_shares_a_quota_and_users_of_a_default_do_not() -> None:
    """9, Who shares one bucket."""
    found = table(Entity(None, ""))
    ann, bob = (found.find(KEY, user, "c") for user in ("ann", "bob"))
    assert ann is not None
    assert bob is not None
    assert ann.bucket != bob.bucket
    assert found.find(KEY, "ann", "other") == ann
    shared = table(Entity("", "c"))
    assert shared.find(KEY, "ann", "c") == shared.find(KEY, "bob", "c")


def test_connections_of_one_bucket_wait_for_each_other() -> None:
    """9, Who shares one bucket: what one has done counts for the other."""
    meters, limit = Meters(11, 1000), Limit(Bucket("u", ""), 1000.0)
    assert meters.at_once_max(limit) == 10_000
    assert meters.take(limit, 10_000, 0) == 0
    assert meters.take(limit, 500, 0) == 500
    assert meters.take(Limit(Bucket("other", ""), 1000.0), 500, 0) == 0


def test_what_must_wait_is_not_counted_if_it_is_not_done() -> None:
    """9, Fetch: the value is un-recorded."""
    meters, limit = Meters(11, 1000), Limit(Bucket("u", ""), 1000.0)
    assert meters.take_if_allowed(limit, 6_000, 0) == 0
    assert meters.take_if_allowed(limit, 6_000, 0) == 2_000
    assert meters.take_if_allowed(limit, 4_000, 0) == 0
    assert [(told.rate, told.throttle_ms) for told in meters.told(0)] == [(1000.0, 2000.0)]


def test_there_are_only_so_many_meters_and_idle_ones_are_forgotten() -> None:
    """9, Who shares one bucket: idle sensors vanish after an hour. Client ids cost no memory."""
    meters = Meters(11, 1000, meters_max=3)
    for number in range(10):
        meters.take(Limit(Bucket("", str(number)), 1.0), 1, number)
    assert len(meters) == 3
    assert {told.bucket.client_id for told in meters.told(9)} == {"7", "8", "9"}
    assert {told.bucket.client_id for told in meters.told(8 + IDLE_MS)} == {"9"}


def test_an_address_has_its_own_quota_or_the_default_however_it_is_written() -> None:
    """9, Entities: ip; each address is measured by itself."""
    rates = AddressRates()
    assert not rates
    rates.set("1.2.3.4", 5)
    rates.set("2001:db8:0::1", 6)
    assert rates.find("9.9.9.9") is None
    rates.set(None, 7)
    assert rates.find("::ffff:1.2.3.4") == Limit(Bucket("1.2.3.4", ""), 5)
    assert rates.find("2001:db8::1%eth0") == Limit(Bucket("2001:db8::1", ""), 6)
    assert rates.find("9.9.9.9") == Limit(Bucket("9.9.9.9", ""), 7)
