"""Ports on this machine for servers that start later."""

from __future__ import annotations

import socket
import sys


class HeldPort:
    """A free port that no other program is given until `close`.

    On Linux the port stays bound, without a listener: the system hands it to nobody else, and a
    server that sets SO_REUSEADDR before it binds, as torch's, asyncio's and `http.server`'s do, can
    listen there all the same. Other systems refuse that, so there the port is only free at first.
    """

    def __init__(self, address: str = "") -> None:
        """`address`: of this machine; default: all of them."""
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((address, 0))
        self.number = int(self._socket.getsockname()[1])
        if sys.platform != "linux":
            self._socket.close()

    def close(self) -> None:
        """Release the port. A server that listens there keeps it."""
        self._socket.close()
