from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.core.config.authorizer import STANDARD_AUTHORIZER, authorizer_settings
from dohle.core.config.broker import BROKER_CONFIGS
from dohle.core.config.dynamic import validate_broker_overrides
from dohle.core.config.listeners import Listener, SecurityProtocol
from dohle.core.config.static import (
    SINGLE_NODE,
    BrokerConfig,
    Notice,
    NoticeLevel,
    effective_broker_config,
)
from dohle.core.errors import ErrorCode, KafkaError

# The pairs that are not comments in the file that comes with Apache Kafka 4.2.1.
_STOCK = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "inter.broker.listener.name": "PLAINTEXT",
    "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,"
    "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "log.dirs": "/tmp/kraft-combined-logs",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "2",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
}


def _config(pairs: dict[str, str]) -> BrokerConfig:
    config, notices = BrokerConfig.from_properties({**SINGLE_NODE, **pairs})
    assert notices == []
    return config


def _notice(name: str, text: str = "x") -> Notice:
    _, notices = BrokerConfig.from_properties({**SINGLE_NODE, name: text})
    assert [notice.key for notice in notices] == [name]
    return notices[0]


def _refusal(pairs: dict[str, str]) -> str:
    with pytest.raises(KafkaError) as caught:
        BrokerConfig.from_properties(pairs)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    message: str = caught.value.args[0]
    return message


def _alter(pairs: dict[str, str], *, cluster_wide: bool = False) -> None:
    validate_broker_overrides(pairs, _config({}), {}, {}, cluster_wide=cluster_wide)


def _bad_request(pairs: dict[str, str], *, cluster_wide: bool = False) -> str:
    with pytest.raises(KafkaError) as caught:
        _alter(pairs, cluster_wide=cluster_wide)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    message: str = caught.value.args[0]
    return message


def test_the_file_that_comes_with_kafka_is_taken_as_it_is() -> None:
    config, notices = BrokerConfig.from_properties(_STOCK)
    plaintext = SecurityProtocol.PLAINTEXT
    assert config.node_id == 1
    assert config.broker_listeners == (Listener("PLAINTEXT", "", 9092, plaintext),)
    assert config.controller_listeners == (Listener("CONTROLLER", "", 9093, plaintext),)
    assert config.listeners == config.broker_listeners + config.controller_listeners
    assert config.advertised_listeners == (Listener("PLAINTEXT", "localhost", 9092, plaintext),)
    assert config.placement.advertised_controller_listeners == (
        Listener("CONTROLLER", "localhost", 9093, plaintext),
    )
    assert config.placement.inter_broker_listener_name == "PLAINTEXT"
    assert config.log_dirs == ("/tmp/kraft-combined-logs",)
    assert config.metadata_log_dir == "/tmp/kraft-combined-logs"
    assert {notice.level for notice in notices} == {NoticeLevel.INFO}
    assert {notice.key for notice in notices} == {
        name for name in _STOCK if BROKER_CONFIGS[name].no_effect
    }
    assert len(notices) == 6


def test_a_node_that_is_alone_needs_little() -> None:
    config = _config({})
    assert config.node_id == 1
    assert config.rack is None
    assert config.controller_listeners == ()
    assert config.advertised_listeners == config.broker_listeners == config.listeners
    assert list(map(str, config.listeners)) == ["PLAINTEXT://:9092"]
    assert config.log_dirs == ("/tmp/kafka-logs",)


def test_a_config_is_what_was_given_or_else_the_default() -> None:
    config = _config({"num.partitions": " 3 ", "broker.rack": "r1", "log.preallocate": "TRUE"})
    assert config["num.partitions"] == config.get_int("num.partitions") == 3
    assert config.text("num.partitions") == " 3 "
    assert config.is_set("num.partitions")
    assert config.rack == config.get_str("broker.rack") == "r1"
    assert config.get_bool("log.preallocate") is True
    assert config.get_list("process.roles") == ("broker", "controller")
    assert config["fetch.max.bytes"] == 57_671_680
    assert config.text("fetch.max.bytes") is None
    assert not config.is_set("fetch.max.bytes")
    assert config.values.keys() == BROKER_CONFIGS.keys()


def test_directories_have_their_places() -> None:
    config = _config({"log.dirs": "/a, /b", "log.dir": "/c", "metadata.log.dir": "/m"})
    assert config.log_dirs == ("/a", "/b")
    assert config.metadata_log_dir == "/m"
    assert _config({"log.dir": "/c"}).log_dirs == ("/c",)
    assert _config({"log.dir": "/c"}).metadata_log_dir == "/c"


def test_broker_id_is_another_name_of_node_id() -> None:
    config, notices = BrokerConfig.from_properties(
        {"process.roles": "broker,controller", "broker.id": "4"}
    )
    assert (config.node_id, notices) == (4, [])
    assert config.text("node.id") == "4"
    assert _refusal({**SINGLE_NODE, "broker.id": "4"}) == (
        "You must set `node.id` to the same value as `broker.id`."
    )


def test_what_does_nothing_here_is_told() -> None:
    assert _notice("max.connection.creation.rate", "3") == Notice(
        NoticeLevel.INFO,
        "max.connection.creation.rate",
        "max.connection.creation.rate has no effect in dohle: this limit is not enforced yet",
    )


def test_what_does_nothing_is_checked_all_the_same() -> None:
    assert _refusal({**SINGLE_NODE, "num.io.threads": "0"}) == (
        "Invalid value 0 for configuration num.io.threads: Value must be at least 1"
    )


@pytest.mark.parametrize(
    "name",
    [
        "listener.name.internal.max.connections",
        "listener.name.internal.ssl.provider",
        "config.providers.file.class",
        "rsm.config.bucket",
    ],
)
def test_names_with_a_free_part_are_known_too(name: str) -> None:
    assert _notice(name).level is NoticeLevel.INFO


def test_the_settings_of_the_authorizer_are_known() -> None:
    """Section 6 of the rules of security, line "super.users"."""
    config, notices = BrokerConfig.from_properties(
        {
            **SINGLE_NODE,
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": "User:CN=admin,O=x; User:bob;",
            "allow.everyone.if.no.acl.found": "TRUE",
        }
    )
    assert notices == []
    settings = authorizer_settings(config)
    assert settings == (frozenset({"User:CN=admin,O=x", "User:bob"}), True)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("authorizer.class.name", "com.example.Mine", "other classes of Java cannot be loaded"),
        ("super.users", "bob", "written like User:bob"),
    ],
)
def test_a_wrong_setting_of_the_authorizer_is_refused(name: str, value: str, reason: str) -> None:
    given = {**SINGLE_NODE, "authorizer.class.name": STANDARD_AUTHORIZER, name: value}
    with pytest.raises(KafkaError, match=reason):
        BrokerConfig.from_properties(given)


@pytest.mark.parametrize(
    "name",
    [
        "listener.name.internal.ssl.keystore.location",
        "listener.name.internal.scram-sha-256.sasl.jaas.config",
        "plain.sasl.jaas.config",
    ],
)
def test_settings_of_security_have_effect_for_listeners_and_mechanisms(name: str) -> None:
    assert _config({name: "x"}).text(name) == "x"


def test_users_of_no_mechanism_are_a_warning() -> None:
    """Security facts, section 1: "A server's plain `sasl.jaas.config` … is ignored with a …"."""
    notice = _notice("sasl.jaas.config")
    assert notice.level is NoticeLevel.WARNING
    assert "plain.sasl.jaas.config" in notice.message


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("num.partition", ", did you mean num.partitions?"),
        ("log.retention.hour", ", did you mean log.retention.hours?"),
        ("retention.ms", ", did you mean log.retention.ms?"),
        ("max.message.bytes", ", did you mean message.max.bytes?"),
        ("num.io.thread", ", did you mean num.io.threads?"),
        ("colour", ""),
        ("listener.name.internal.colour", ""),
    ],
)
def test_an_unknown_name_is_a_warning_with_the_nearest_known_one(name: str, hint: str) -> None:
    message = f"{name} is not a known configuration{hint}"
    assert _notice(name) == Notice(NoticeLevel.WARNING, name, message, is_unknown=True)


@pytest.mark.parametrize("missing", ["node.id", "process.roles"])
def test_what_must_be_given_is_asked_for(missing: str) -> None:
    pairs = {name: text for name, text in SINGLE_NODE.items() if name != missing}
    message = f'Missing required configuration "{missing}" which has no default value. '
    assert _refusal(pairs).startswith(message)


def test_all_wrong_values_are_told_at_once() -> None:
    pairs = {"num.partitions": "none", "log.segment.bytes": "5", "log.cleanup.policy": "forget"}
    assert _refusal({**SINGLE_NODE, **pairs}).splitlines() == [
        "Invalid value forget for configuration log.cleanup.policy: "
        "String must be one of: compact, delete",
        "Invalid value 5 for configuration log.segment.bytes: Value must be at least 1048576",
        "Invalid value none for configuration num.partitions: Not a number of type INT",
    ]


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ({"node.id": "-1"}, "Invalid value -1 for configuration node.id: Value must be at least 0"),
        ({"log.roll.ms": "0"}, "log.roll.ms must be greater than or equal to 1, and it is 0"),
        (
            {"log.roll.jitter.ms": "-1"},
            "log.roll.jitter.ms must be greater than or equal to 0, and it is -1",
        ),
        (
            {"log.flush.interval.ms": "-1"},
            "log.flush.interval.ms must be greater than or equal to 0, and it is -1",
        ),
        (
            {"log.retention.minutes": "0"},
            "log.retention.minutes must be unlimited (-1) or, greater than or equal to 1, "
            "and it is 0",
        ),
        ({"queued.max.request.bytes": "1000"}, "queued.max.request.bytes must be greater than or"),
        ({"max.connections.per.ip": "0"}, "max.connections.per.ip can be set to zero only if"),
    ],
)
def test_values_that_do_not_fit_together_are_refused(pairs: dict[str, str], message: str) -> None:
    assert _refusal({**SINGLE_NODE, **pairs}).startswith(message)


def test_a_time_that_does_not_count_may_be_zero() -> None:
    assert _config({"log.retention.ms": "5", "log.retention.hours": "0"})["log.retention.ms"] == 5


def test_dynamic_configs_are_laid_over_the_static_ones() -> None:
    broker = _config({"max.connections": "5", "num.partitions": "2"})
    dynamic = {"max.connections": "7", "num.partitions": "9", "not.there": "1"}
    default = {"max.connections": "6", "log.retention.ms": "10"}
    values = effective_broker_config(broker, dynamic, default)
    changed = {name: value for name, value in values.items() if value != broker[name]}
    assert changed == {"max.connections": 7, "log.retention.ms": 10}
    assert broker.effective("max.connections") == 5
    assert broker.effective("max.connections", {}, default) == 6


def test_what_a_running_broker_can_follow_may_be_altered() -> None:
    for cluster_wide in (False, True):
        _alter({"max.connections": "3"}, cluster_wide=cluster_wide)
        _alter({"log.retention.ms": "-1"}, cluster_wide=cluster_wide)
        _alter({}, cluster_wide=cluster_wide)


def test_what_has_no_effect_or_is_not_known_may_be_altered_too() -> None:
    for cluster_wide in (False, True):
        _alter({"log.cleaner.backoff.ms": "3", "colour": "2"}, cluster_wide=cluster_wide)
        _alter({"num.io.threads": "16", "max.connection.creation.rate": "5"})
    _alter({"listener.name.internal.ssl.keystore.location": "/keys"})


def test_unknown_names_are_kept_up_to_a_number() -> None:
    _alter({f"colour.{number}": "red" for number in range(1000)})
    assert _bad_request({f"colour.{number}": "red" for number in range(1001)}) == (
        "No more than 1000 configs of unknown names are kept"
    )


def test_what_is_of_one_broker_cannot_be_altered_for_all() -> None:
    name = "listener.name.internal.ssl.keystore.location"
    assert _bad_request({name: "/keys"}, cluster_wide=True) == (
        f"Cannot update these configs at default cluster level, broker id must be specified: "
        f"Set({name})"
    )


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (
            {"node.id": "2", "max.connections": "1", "log.dirs": "/a"},
            "Cannot update these configs dynamically: Set(node.id, log.dirs)",
        ),
        (
            {"num.io.threads": "3"},
            "Dynamic thread count update validation failed for num.io.threads=3, value should be "
            "at least half the current value 8",
        ),
        (
            {"num.io.threads": "17"},
            "Dynamic thread count update validation failed for num.io.threads=17, value should "
            "not be greater than double the current value 8",
        ),
        (
            {"ssl.keystore.location": "/keys"},
            "These security configs can be dynamically updated only per-listener using the "
            "listener prefix: Set(ssl.keystore.location)",
        ),
        (
            {"log.local.retention.ms": "-1"},
            "Invalid value -1 for configuration log.local.retention.ms: Value must not be -1 as "
            "log.retention.ms value is set as 604800000.",
        ),
        (
            {"listener.name.internal.max.connections": "x"},
            "Invalid value x for configuration max.connections: Not a number of type INT",
        ),
        (
            {"max.connections": "x"},
            "Invalid value x for configuration max.connections: Not a number of type INT",
        ),
        ({"log.roll.ms": "0"}, "log.roll.ms must be greater than or equal to 1, and it is 0"),
    ],
)
def test_what_a_running_broker_cannot_follow_is_refused(
    pairs: dict[str, str], message: str
) -> None:
    assert _bad_request(pairs) == message


@given(
    st.dictionaries(
        st.sampled_from([*BROKER_CONFIGS, "broker.id"]),
        st.text() | st.integers(-2, 100_000_000).map(str) | st.text("ab:/@,19", max_size=12),
        max_size=6,
    )
)
def test_any_properties_are_taken_or_refused(pairs: dict[str, str]) -> None:
    try:
        config, _ = BrokerConfig.from_properties({**SINGLE_NODE, **pairs})
    except KafkaError:
        return
    assert config.log_dirs
    assert config.listeners


_SESSION = "group.consumer.{}session.timeout.ms"
_HEARTBEAT = "group.consumer.{}heartbeat.interval.ms"


@pytest.mark.parametrize(
    ("pairs", "wrong"),
    [
        ({_SESSION.format(""): "44999"}, _SESSION.format("")),
        ({_SESSION.format(""): "60001"}, _SESSION.format("max.")),
        ({_SESSION.format("min."): "60001"}, _SESSION.format("max.")),
        ({_SESSION.format("min."): "45001"}, _SESSION.format("")),
        ({_HEARTBEAT.format(""): "4999"}, _HEARTBEAT.format("")),
        ({_HEARTBEAT.format(""): "15001"}, _HEARTBEAT.format("max.")),
        ({_HEARTBEAT.format("max."): "4999"}, _HEARTBEAT.format("max.")),
        (
            {
                _SESSION.format("min."): "100",
                _SESSION.format(""): "5000",
                _HEARTBEAT.format(""): "5000",
            },
            f"{_HEARTBEAT.format('')} must be less than",
        ),
    ],
)
def test_times_of_consumer_groups_have_to_be_within_their_limits(
    pairs: dict[str, str], wrong: str
) -> None:
    with pytest.raises(KafkaError, match=f": {wrong} ") as refused:
        BrokerConfig.from_properties({**SINGLE_NODE, **pairs})
    assert refused.value.code is ErrorCode.INVALID_CONFIG


def test_short_sessions_of_consumer_groups_take_lower_limits() -> None:
    pairs = {_SESSION.format(prefix): "3000" for prefix in ("min.", "")}
    pairs |= {_HEARTBEAT.format(prefix): "100" for prefix in ("min.", "")}
    config = _config(pairs)
    assert config.get_int(_SESSION.format("")) == 3_000
