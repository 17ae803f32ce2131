"""ControllerRegistration: each controller says where it is and what it supports (KIP-919).

Whether a feature can be raised depends on what all controllers support. A registration is replaced
when the controller starts again; nothing removes it.
"""

from __future__ import annotations

from dohle.core.errors import ErrorCode
from dohle.metadata.decision import Decision, VersionedRecord
from dohle.metadata.image import ClusterImage
from dohle.metadata.metadata_version import supports_controller_registration
from dohle.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from dohle.protocol.messages.records.cluster_metadata import (
    ControllerEndpoint,
    ControllerFeature,
    RegisterControllerRecord,
)


def register_controller(
    image: ClusterImage, request: ControllerRegistrationRequest
) -> Decision[ControllerRegistrationResponse]:
    """Register a controller, whatever it says of itself."""
    level = image.metadata_version
    if level is None or not supports_controller_registration(level):
        message = "The metadata.version is too old to support registrations of controllers."
        reply = ControllerRegistrationResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=message
        )
        return Decision((), reply)
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=request.zk_migration_ready,
        end_points=tuple(
            ControllerEndpoint(
                name=each.name,
                host=each.host,
                port=each.port,
                security_protocol=each.security_protocol,
            )
            for each in request.listeners
        ),
        features=tuple(
            ControllerFeature(
                name=each.name,
                min_supported_version=each.min_supported_version,
                max_supported_version=each.max_supported_version,
            )
            for each in request.features
        ),
    )
    return Decision((VersionedRecord(record, 0),), ControllerRegistrationResponse())
