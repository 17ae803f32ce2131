"""Controllers that register, and features that all who registered must support."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId
from dohle.metadata.controllers import register_controller
from dohle.metadata.features import TOLERATED_FEATURES, update_features
from dohle.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    Feature,
    Listener,
)
from dohle.protocol.messages.records.cluster_metadata import ConfigRecord, FeatureLevelRecord
from dohle.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.metadata.cluster import Cluster, context, registration, uuid

ELR = "eligible.leader.replicas.version"


def controller(
    controller_id: int, *, incarnation: int = 1, highest: int | None = None
) -> ControllerRegistrationRequest:
    """Return a registration; ``highest`` is the last metadata.version that it supports."""
    return ControllerRegistrationRequest(
        controller_id=controller_id,
        incarnation_id=uuid(incarnation),
        listeners=(Listener(name="CONTROLLER", host="h", port=9093),),
        features=tuple(
            Feature(
                name=name,
                min_supported_version=versions.lowest,
                max_supported_version=highest
                if highest is not None and name == "metadata.version"
                else versions.highest,
            )
            for name, versions in TOLERATED_FEATURES.items()
        ),
    )


def at_level(level: int, properties: dict[str, str] | None = None) -> Cluster:
    made = Cluster(context(properties))
    made.bootstrap(level)
    return made


def update(made: Cluster, feature: str, level: int) -> tuple[int, str]:
    key = FeatureUpdateKey(feature=feature, max_version_level=level)
    request = UpdateFeaturesRequest(feature_updates=(key,))
    reply = made.commit(update_features(made.image, request, made.context, version=2))
    return reply.error_code, reply.error_message or ""


def test_a_controller_registers_and_replaces_its_former_life() -> None:
    """A15: RegisterController v0, with all its listeners and features."""
    made = at_level(29)
    for incarnation in (1, 2):
        request = controller(3000, incarnation=incarnation)
        assert made.commit(register_controller(made.image, request)).error_code == 0
    registered = made.image.controllers[3000]
    assert registered.incarnation_id == uuid(2)
    (endpoint,) = registered.end_points
    assert (endpoint.name, endpoint.host, endpoint.port) == ("CONTROLLER", "h", 9093)
    assert {each.name for each in registered.features} == set(TOLERATED_FEATURES)


@pytest.mark.parametrize(("level", "code"), [(14, ErrorCode.UNSUPPORTED_VERSION), (15, 0)])
def test_controllers_register_from_3_7_on(level: int, code: int) -> None:
    """A16: nothing but the metadata.version is looked at; below 15 → 35."""
    made = at_level(level)
    assert made.commit(register_controller(made.image, controller(3000))).error_code == code
    assert len(made.image.controllers) == (not code)


def test_a_level_must_be_supported_by_all_controllers() -> None:
    """A22: of every registered controller."""
    made = at_level(20)
    made.commit(register_controller(made.image, controller(3000, highest=25)))
    code, message = update(made, "metadata.version", 29)
    assert code == ErrorCode.INVALID_UPDATE_VERSION
    assert "Controller 3000 only supports versions" in message
    assert update(made, "metadata.version", 25) == (0, "")


def test_a_level_must_be_supported_by_brokers_that_are_fenced_too() -> None:
    """A22: every registered broker."""
    made = at_level(20)
    old = tuple(
        each.replace(max_supported_version=25) if each.name == "metadata.version" else each
        for each in registration().features
    )
    made.register(registration(2).replace(features=old))
    assert made.image.brokers[BrokerId(2)].fenced
    code, message = update(made, "metadata.version", 29)
    assert code == ErrorCode.INVALID_UPDATE_VERSION
    assert "Broker 2 only supports versions" in message


@pytest.mark.parametrize("level", [14, 20])
def test_a_voter_of_the_configuration_that_never_registered_stops_an_update(level: int) -> None:
    """A22: a static quorum id that never registered; before 3.7 nobody can tell."""
    made = at_level(level, {"controller.quorum.voters": "1@a:9093"})
    assert update(made, "metadata.version", level + 1) == (0, ""), "it is this one"
    made = at_level(level)
    config = made.context.config
    values = type(config.values)(config.values)
    values["controller.quorum.voters"] = ("1@a:9093", "2@b:9093")
    made.context = replace(made.context, config=replace(config, values=values))
    code, message = update(made, "metadata.version", level + 1)
    if level < 15:
        assert code == 0
        return
    assert code == ErrorCode.INVALID_UPDATE_VERSION
    assert "controller 2 has not registered" in message
    made.commit(register_controller(made.image, controller(2)))
    assert update(made, "metadata.version", level + 1) == (0, "")


def test_eligible_leader_replicas_need_4_0() -> None:
    """A22: metadata.version 23, which may come in the same request."""
    made = at_level(22)
    code, message = update(made, ELR, 1)
    assert code == ErrorCode.INVALID_UPDATE_VERSION
    assert "metadata.version level 23" in message
    both = tuple(
        FeatureUpdateKey(feature=name, max_version_level=level)
        for name, level in ((ELR, 1), ("metadata.version", 23))
    )
    request = UpdateFeaturesRequest(feature_updates=both)
    decision = update_features(made.image, request, made.context, version=2)
    assert made.commit(decision).error_code == 0
    # The minimum is in the log before anything depends on it.
    kinds = [type(each.record) for each in decision.records]
    assert kinds == [ConfigRecord, FeatureLevelRecord, FeatureLevelRecord]
    assert made.image.cluster_config() == {"min.insync.replicas": "1"}
