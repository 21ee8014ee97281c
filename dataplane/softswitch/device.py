"""The switch as one P4Runtime device: its active pipeline configuration, and a saved one.

P4Runtime specification, "SetForwardingPipelineConfig RPC" and "GetForwardingPipelineConfig RPC".
"""

from __future__ import annotations

import logging
from collections.abc import Collection

import grpc
from finsy.proto import p4r

from switchml.dataplane.softswitch._native import Switch
from switchml.dataplane.softswitch.errors import P4RuntimeError
from switchml.dataplane.softswitch.native_tables import native_errors
from switchml.dataplane.softswitch.pipeline import Pipeline
from switchml.dataplane.softswitch.pipeline_config import Dimensions, load_supported_p4info, verify
from switchml.dataplane.softswitch.table_entry import invalid

__all__ = ["P4RuntimeDevice"]

_LOG = logging.getLogger(__name__)

# Maximum number of updates between VERIFY_AND_SAVE and COMMIT, which are kept for replaying.
_MAX_SAVED_UPDATES = 100_000

_SetConfig = p4r.SetForwardingPipelineConfigRequest
_GetConfig = p4r.GetForwardingPipelineConfigRequest


class _SavedPipeline:
    """A configuration after VERIFY_AND_SAVE. Writes and reads go to a separate switch, which carries no packets."""

    def __init__(self, config: p4r.ForwardingPipelineConfig, dimensions: Dimensions, ports: Collection[int]) -> None:
        self._ports = ports
        with native_errors("the pipeline configuration"):
            scratch = Switch(dimensions.slots, dimensions.values_per_packet)
        self.pipeline = Pipeline(config, dimensions, scratch, ports)
        self._updates: list[p4r.Update] = []

    def write(self, update: p4r.Update) -> None:
        if len(self._updates) >= _MAX_SAVED_UPDATES:
            raise P4RuntimeError(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{_MAX_SAVED_UPDATES} updates wait for the saved pipeline configuration: commit it first",
            )
        self.pipeline.write(update)
        self._updates.append(update)

    def realize(self, switch: Switch) -> Pipeline:
        """Return the same pipeline over ``switch``, which is reset first."""
        dimensions = self.pipeline.dimensions
        with native_errors("the pipeline configuration"):
            switch.reset(dimensions.slots, dimensions.values_per_packet)
        pipeline = Pipeline(self.pipeline.config, dimensions, switch, self._ports)
        for update in self._updates:
            pipeline.write(update)
        return pipeline


class P4RuntimeDevice:
    """One device: the native switch that carries packets, and its forwarding-pipeline configuration.

    Everything here runs in the server's event loop and never waits, so requests never overlap and no lock is needed.
    ``default`` are the dimensions for an empty device configuration.
    """

    def __init__(self, switch: Switch, ports: Collection[int], default: Dimensions) -> None:
        self._switch = switch
        self._ports = ports
        self._default = default
        self._supported = load_supported_p4info()
        self._running: Pipeline | None = None
        self._saved: _SavedPipeline | None = None

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline that reads refer to. Raises P4RuntimeError FAILED_PRECONDITION while there is no pipeline."""
        if self._saved is not None:
            return self._saved.pipeline
        if self._running is None:
            raise P4RuntimeError(
                grpc.StatusCode.FAILED_PRECONDITION,
                "no forwarding pipeline config has been set for this device: call SetForwardingPipelineConfig first",
            )
        return self._running

    def write(self, update: p4r.Update) -> None:
        """Execute one update of a WriteRequest; raises P4RuntimeError."""
        if self._saved is not None:
            self._saved.write(update)
        else:
            self.pipeline.write(update)

    def set_config(self, request: p4r.SetForwardingPipelineConfigRequest) -> None:
        """Handle SetForwardingPipelineConfig; raises P4RuntimeError, and then changes nothing."""
        if request.action == _SetConfig.COMMIT:
            self._commit(request)
            return
        if request.action not in _SetConfig.Action.values() or request.action == _SetConfig.UNSPECIFIED:
            raise invalid(f"action {request.action} is not one of SetForwardingPipelineConfigRequest.Action")
        if not request.HasField("config"):
            raise invalid("the request has no config")
        config = p4r.ForwardingPipelineConfig()
        config.CopyFrom(request.config)
        dimensions = verify(config, self._supported, self._default)
        if request.action == _SetConfig.VERIFY_AND_SAVE:
            self._saved = _SavedPipeline(config, dimensions, self._ports)
        elif request.action == _SetConfig.VERIFY_AND_COMMIT:
            self._realize(config, dimensions)
        elif request.action == _SetConfig.RECONCILE_AND_COMMIT:
            self._reconcile(config, dimensions)

    def get_config(
        self, response_type: p4r.GetForwardingPipelineConfigRequest.ResponseType.ValueType
    ) -> p4r.GetForwardingPipelineConfigResponse:
        """Return the requested parts of the configuration; no config at all while none is set."""
        response = p4r.GetForwardingPipelineConfigResponse()
        if response_type not in _GetConfig.ResponseType.values():
            raise invalid(
                f"response type {response_type} is not one of GetForwardingPipelineConfigRequest.ResponseType"
            )
        if self._saved is None and self._running is None:
            return response
        response.config.CopyFrom(self.pipeline.config)
        if response_type in (_GetConfig.COOKIE_ONLY, _GetConfig.DEVICE_CONFIG_AND_COOKIE):
            response.config.ClearField("p4info")
        if response_type in (_GetConfig.COOKIE_ONLY, _GetConfig.P4INFO_AND_COOKIE):
            response.config.ClearField("p4_device_config")
        return response

    def _commit(self, request: p4r.SetForwardingPipelineConfigRequest) -> None:
        if request.HasField("config"):
            raise invalid("COMMIT uses the saved config: the request must not have one")
        if self._saved is None:
            raise P4RuntimeError(
                grpc.StatusCode.NOT_FOUND, "there is no saved config to commit: call VERIFY_AND_SAVE first"
            )
        self._retire()
        self._running = self._saved.realize(self._switch)
        self._saved = None
        self._log_running("committed")

    def _retire(self) -> None:
        if self._running is not None:
            self._running.retire()

    def _realize(self, config: p4r.ForwardingPipelineConfig, dimensions: Dimensions) -> None:
        self._retire()
        with native_errors("the pipeline configuration"):
            self._switch.reset(dimensions.slots, dimensions.values_per_packet)
        self._running = Pipeline(config, dimensions, self._switch, self._ports)
        self._saved = None
        self._log_running("set")

    def _reconcile(self, config: p4r.ForwardingPipelineConfig, dimensions: Dimensions) -> None:
        if self._running is None:
            self._realize(config, dimensions)
            return
        if dimensions != self._running.dimensions or config.p4info != self._running.config.p4info:
            changed = "p4info" if dimensions == self._running.dimensions else "device config"
            raise invalid(
                f"the forwarding state cannot be preserved, because the {changed} differs: the pipeline runs with "
                f"{self._running.dimensions}, the request asks for {dimensions}; use VERIFY_AND_COMMIT, which "
                "clears the state"
            )
        self._running.config = config
        self._saved = None
        self._log_running("kept")

    def _log_running(self, what: str) -> None:
        assert self._running is not None
        dimensions = self._running.dimensions
        _LOG.info("pipeline %s: %d values per packet, %d slots", what, dimensions.values_per_packet, dimensions.slots)
