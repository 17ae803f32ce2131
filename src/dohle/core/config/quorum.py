"""The configs of the quorum, and of the controller that it makes the active one."""

from __future__ import annotations

from typing import Final

from dohle.core.config.definition import ConfigKey, ConfigType, Range, UpdateMode

_INT = ConfigType.INT
_PREFIX = "controller.quorum."


def _ms(name: str, default: int, doc: str) -> ConfigKey:
    return ConfigKey(f"{_PREFIX}{name}.ms", _INT, default, doc, Range(0))


QUORUM_CONFIGS: Final = (
    _ms(
        "append.linger",
        25,
        "How long the leader gathers records before it writes them to the metadata log; a quorum "
        "of one does not wait.",
    ),
    ConfigKey(
        f"{_PREFIX}auto.join.enable",
        ConfigType.BOOLEAN,
        False,
        "Whether a controller that has no vote asks for one (KIP-1186).",
    ),
    _ms(
        "election.backoff.max",
        1000,
        "How long a voter waits at most before it stands for election after the leader has "
        "resigned.",
    ),
    _ms(
        "election.timeout",
        1000,
        "How long a voter without a leader waits before it stands for election, and for the votes "
        "then; up to twice as long, by chance.",
    ),
    _ms(
        "fetch.timeout",
        2000,
        "How long a voter waits for an answer of the leader before it looks for another, and the "
        "leader for requests of a majority before it resigns.",
    ),
    _ms("request.timeout", 2000, "How long a node waits for the answer of another."),
    _ms("retry.backoff", 20, "How long a node waits before it asks again after an error."),
    ConfigKey(
        "auto.leader.rebalance.enable",
        ConfigType.BOOLEAN,
        True,
        "Whether the controller lets the first replica of a partition lead again, once it can.",
    ),
    ConfigKey(
        "broker.session.timeout.ms",
        _INT,
        9000,
        "How long a broker may be silent before the controller fences it.",
    ),
    ConfigKey(
        "leader.imbalance.check.interval.seconds",
        ConfigType.LONG,
        300,
        "How often the controller looks for partitions that their first replica does not lead.",
        Range(1),
    ),
    ConfigKey(
        "metadata.max.idle.interval.ms",
        _INT,
        500,
        "How often the active controller writes a record that changes nothing, so that its readers "
        "see that it is there; 0: never. Nothing is written while nobody else reads.",
        Range(0),
    ),
    ConfigKey(
        "unclean.leader.election.interval.ms",
        ConfigType.LONG,
        300_000,
        "How often the controller looks for partitions whose leader may be elected uncleanly.",
        Range(1),
        UpdateMode.READ_ONLY,
        is_internal=True,
    ),
)
