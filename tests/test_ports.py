"""Ports that are chosen before their server starts."""

from __future__ import annotations

import errno
import socket
import sys

import pytest

from rmrl.cluster.worker_group import Anchor
from rmrl.ports import HeldPort
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ports are held on Linux")


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S).close()
    except ConnectionRefusedError:
        return False
    return True


def test_a_held_port_is_given_to_nobody_else_and_has_no_listener() -> None:
    port = HeldPort("127.0.0.1")
    assert not listens(port.number)
    with socket.socket() as other, pytest.raises(OSError, match="in use") as refused:
        other.bind(("127.0.0.1", port.number))
    assert refused.value.errno == errno.EADDRINUSE
    port.close()
    with socket.socket() as other:
        other.bind(("127.0.0.1", port.number))


def test_a_server_listens_on_the_port_that_was_held_for_it() -> None:
    port = HeldPort("127.0.0.1")
    with socket.create_server(("127.0.0.1", port.number)):
        assert listens(port.number)
        port.close()
        assert listens(port.number)


def test_training_processes_meet_on_a_port_that_nobody_else_can_take() -> None:
    from torch.distributed import TCPStore

    anchor = Anchor()
    port = anchor.free_port()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("", port))
    store = TCPStore("127.0.0.1", port, world_size=1, is_master=True)
    store.set("key", "value")
    assert store.get("key") == b"value"
