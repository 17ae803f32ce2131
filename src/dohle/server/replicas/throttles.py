"""The throttles of a broker's replication, as its settings have them."""

from __future__ import annotations

from dohle.core.config.definition import ConfigValues
from dohle.core.config.static import BrokerConfig
from dohle.replication.throttle import ReplicationQuota

_WINDOWS, _WINDOW_S = "replication.quota.window.num", "replication.quota.window.size.seconds"
_LEADER, _FOLLOWER = "leader.replication.throttled.rate", "follower.replication.throttled.rate"


class Throttles:
    """One for what is sent to other brokers, one for what is fetched from them."""

    def __init__(self, config: BrokerConfig) -> None:
        windows, window_ms = config.get_int(_WINDOWS), config.get_int(_WINDOW_S) * 1000
        self.leader = ReplicationQuota(windows, window_ms)
        self.follower = ReplicationQuota(windows, window_ms)

    def configure(self, values: ConfigValues) -> None:
        """Let the rates in force take effect."""
        self.leader.bytes_per_second = values.get_int(_LEADER)
        self.follower.bytes_per_second = values.get_int(_FOLLOWER)
