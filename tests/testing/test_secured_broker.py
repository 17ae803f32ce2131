"""``dohle.testing.Broker(security=…)``."""

from __future__ import annotations

from pathlib import Path

import pytest

from dohle.client.errors import AuthenticationFailed
from dohle.client.sync import Admin, Producer
from dohle.testing import Broker


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_its_administrator_may_do_everything_and_others_nothing(
    protocol: str, tmp_path: Path
) -> None:
    with Broker(security=protocol, data=tmp_path) as broker:
        mine = {"bootstrap.servers": broker.bootstrap, **broker.client_properties}
        with Producer(mine) as producer:
            assert producer.send("orders", b"1").offset == 0
        with Admin(mine) as admin:
            assert "orders" in admin.list_topics()
        if protocol != "SSL":
            wrong = mine | {"sasl.jaas.config": mine["sasl.jaas.config"].replace("=", '="x" z=', 1)}
            with pytest.raises(AuthenticationFailed), Admin(wrong) as admin:
                admin.list_topics()


def test_a_protocol_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="SASL_SSL"):
        Broker(security="PLAINTEXT")
