"""All that fedsofim uses of Flower beside its public interface, in one place.

A piece that a changed Flower lacks is an error that names it and the versions that fedsofim works with. Nothing falls
back silently.
"""

from importlib.metadata import version
from typing import Any

import httpx

from fedsofim.errors import InputError

WORKS_WITH = "flwr 1.41 and 1.42"

try:
    from flwr.app.message import Message, make_message, remove_content_from_message
    from flwr.app.metadata import Metadata
    from flwr.common.constant import SUPERLINK_NODE_ID, TIMESTAMP_HEADER, ErrorCode
    from flwr.common.serde import message_to_proto
    from flwr.proto import fleet_pb2, heartbeat_pb2, message_pb2, recorddict_pb2, runtime_pb2
    from flwr.proto.node_pb2 import Node
    from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
    from flwr.supercore.error import FlowerError
    from flwr.supercore.inflatable.inflatable_object import (
        get_all_nested_objects,
        get_object_id,
        get_object_tree,
        no_object_id_recompute,
    )
    from flwr.supercore.interceptors.http.utils import add_headers
    from flwr.supercore.primitives.asymmetric import (
        bytes_to_public_key,
        generate_key_pairs,
        public_key_to_bytes,
        verify_signature,
    )
    from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE
    from flwr.supercore.runtime_version_compatibility import RuntimeVersionMetadata
    from flwr.supercore.task_identity import TaskIdentity
    from flwr.superlink.grid.http_grid import HttpGrid
    from flwr.supernode.fleet_http_client import FleetHttpClient
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
except ImportError as error:
    raise InputError(
        f"the Flower that is installed here ({version('flwr')}) lacks a piece that fedsofim uses ({error}); fedsofim "
        f"works with {WORKS_WITH}: pip install 'fedsofim[flower]'"
    ) from error

__all__ = [
    "FLEET_HTTP_PUBLIC_KEY_HEADER",
    "FLEET_HTTP_SIGNATURE_HEADER",
    "PROTOBUF_MEDIA_TYPE",
    "SUPERLINK_NODE_ID",
    "TIMESTAMP_HEADER",
    "ErrorCode",
    "FleetHttpClient",
    "FlowerError",
    "HttpGrid",
    "Message",
    "Metadata",
    "Node",
    "NodeAuthHttpInterceptor",
    "NodeVersion",
    "TaskIdentity",
    "bytes_to_public_key",
    "fleet_pb2",
    "generate_key_pairs",
    "get_all_nested_objects",
    "get_object_id",
    "get_object_tree",
    "heartbeat_pb2",
    "http_client_of",
    "make_message",
    "message_pb2",
    "message_to_proto",
    "no_object_id_recompute",
    "public_key_to_bytes",
    "recorddict_pb2",
    "remove_content_from_message",
    "runtime_client_of",
    "runtime_pb2",
    "set_http_client",
    "verify_signature",
]


def _lacks(piece: str) -> InputError:
    return InputError(
        f"the Flower that is installed here ({version('flwr')}) has no {piece}; fedsofim works with {WORKS_WITH}: "
        "pip install 'fedsofim[flower]'"
    )


class NodeVersion:
    """Tells the SuperLink the versions of a node, as Flower's own SuperNode does.

    Flower's interceptor also ends the process where the SuperLink says so. A node never does that.
    """

    def __init__(self) -> None:
        self._headers = dict(RuntimeVersionMetadata.from_local_component("SuperNode").as_metadata())

    def intercept(self, context: Any, call_next: Any) -> httpx.Response:
        add_headers(context.request, self._headers)
        return call_next(context)


def http_client_of(client: Any) -> httpx.Client:
    """The HTTP client inside one of Flower's; an error if Flower keeps it elsewhere now."""
    found = getattr(client, "_client", None)
    if not isinstance(found, httpx.Client):
        raise _lacks(f"HTTP client in {type(client).__name__}._client")
    return found


def set_http_client(client: Any, ours: httpx.Client) -> None:
    """Have one of Flower's clients use our HTTP client in the place of its own."""
    http_client_of(client).close()
    client._client = ours


def runtime_client_of(grid: Any) -> Any:
    """The connection of Flower's own grid, which follows no redirects from here on; None for any other grid."""
    if not isinstance(grid, HttpGrid):
        return None
    client = getattr(grid, "_runtime_client", None)
    if client is None:
        raise _lacks("connection in HttpGrid._runtime_client")
    http_client_of(client).follow_redirects = False
    return client
