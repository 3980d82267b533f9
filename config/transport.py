"""The broker's transport, so that a worker outlives a lost connection."""

from __future__ import annotations

from typing import Any

from kombu.transport.redis import Channel, Transport
from redis.exceptions import ConnectionError as BrokerGoneError


class SteadyChannel(Channel):
    """kombu's channel, with one fault of kombu 5.7 mended.

    Once a lost connection has been let go of, a late acknowledgement, and the attempt to give
    back what is not acknowledged, want a new pool and raise AttributeError ("'NoneType' object
    has no attribute 'hostname'"). Celery knows that for no error of a connection: the worker
    ends, with every body that runs in it.
    """

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:  # noqa: FBT001, FBT002
        """Where to connect to; the broker's own error when this channel's connection is gone."""
        if getattr(self.connection, "client", None) is None:
            raise BrokerGoneError("the connection of this channel was lost")
        params: dict[str, Any] = super()._connparams(asynchronous=asynchronous)  # type: ignore[misc]
        return params


class SteadyTransport(Transport):
    """The transport of redis:// URLs, with steady channels."""

    Channel = SteadyChannel
