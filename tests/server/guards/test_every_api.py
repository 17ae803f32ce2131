"""Every API needs its right: the table of section 6, with no right, exactly it, and a denial."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dohle.core.acls import ANY, PatternType
from dohle.core.ids import TopicName
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from dohle.protocol.response_errors import error_codes_of
from dohle.protocol.schema import Response
from dohle.server.guards.table import BROKER_GUARDS, CONTROLLER_GUARDS
from dohle.server.node import Node
from dohle.server.registry import all_handlers, controller_handlers
from tests.server.guards.authorized import (
    Right,
    Wire,
    grant,
    make_topic,
    on_guarded_node,
    revoke,
)
from tests.server.guards.cases import ALL, Case


def _codes(response: Response) -> set[int]:
    found = set(error_codes_of(type(response))(response))
    if isinstance(response, AddPartitionsToTxnResponse):
        # Its partitions have a field of another name.
        for topic in response.results_by_topic_v3_and_below:
            found |= {each.partition_error_code for each in topic.results_by_partition}
    return found


def _literal(right: Right) -> Right:
    return right


def _prefixed(right: Right) -> Right:
    return right._replace(name=right.name[:2], pattern=PatternType.PREFIXED)


def _any_name(right: Right) -> Right:
    return right._replace(name=ANY)


@pytest.mark.parametrize("written", [_literal, _prefixed, _any_name])
@pytest.mark.parametrize("cases", ALL.values(), ids=ALL)
def test_each_api_is_refused_without_its_right_and_served_with_it(
    tmp_path: Path, cases: tuple[Case, ...], written: Callable[[Right], Right]
) -> None:
    """Table of section 6: no right, exactly the right, a right and a denial of it."""

    async def scenario(node: Node, wire: Wire) -> None:
        await make_topic(node, "orders")
        for topic in ("__consumer_offsets", "__transaction_state"):
            await node.broker.coordinators.internal_topics.ensure(TopicName(topic))
        for request, rights, code, version, is_deniable in cases:
            what = type(request).__name__, rights
            *others, last = rights
            await grant(node, *map(_as_it_may_be(written), others))
            assert code in _codes(await wire.send(request, version)), what
            await grant(node, _as_it_may_be(written)(last))
            assert code not in _codes(await wire.send(request, version)), what
            await grant(node, _as_it_may_be(written)(last)._replace(deny=True))
            if is_deniable:
                assert code in _codes(await wire.send(request, version)), what
            await revoke(node)

    on_guarded_node(tmp_path, scenario)


def _as_it_may_be(written: Callable[[Right], Right]) -> Callable[[Right], Right]:
    """The cluster has no name but its own."""
    return lambda right: right if right.name == "kafka-cluster" else written(right)


def test_every_api_that_is_served_has_its_line_in_the_table() -> None:
    served = all_handlers(two_phase_commit=True).keys()
    replaced = {ApiKey.METADATA, ApiKey.DESCRIBE_TOPIC_PARTITIONS}
    assert served - replaced <= BROKER_GUARDS.keys()
    assert controller_handlers(lambda *_: None).keys() <= CONTROLLER_GUARDS.keys()  # type: ignore[arg-type]


def test_every_api_that_needs_a_right_is_tried() -> None:
    tried = {case.request.API_KEY for cases in ALL.values() for case in cases}
    hidden = {ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_CLUSTER}
    untold = {
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
    }
    assert set(all_handlers()) - tried == hidden | untold
