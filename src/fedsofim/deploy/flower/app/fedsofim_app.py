"""What Flower loads on the server; a node under `fedsofim node` loads its own and never this file."""

from fedsofim.deploy.flower.client_app import app as client
from fedsofim.deploy.flower.server_app import app as server

__all__ = ["client", "server"]
