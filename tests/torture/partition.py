"""camu with a proxy between each node and the SuperLink: `python -m torture.partition ARGS`.

While the file that CAMU_TORTURE_BLOCKED names has the number of a node, or `all`, nothing passes
between this node and the SuperLink. Bytes are held and not lost, as by a firewall that drops
packets, which are sent again later.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path

BLOCKED_FILE = "CAMU_TORTURE_BLOCKED"
EVERY_NODE = "all"


def is_blocked(number: int) -> bool:
    """Whether a node's port is blocked now."""
    try:
        return Path(os.environ.get(BLOCKED_FILE, "")).read_text() in (EVERY_NODE, str(number))
    except OSError:
        return False


def open_proxy(number: int, target: int) -> int:
    """Pass connections to another port of the loopback address; returns the proxy's own port."""
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_accept, args=(listener, number, target), daemon=True).start()
    return int(listener.getsockname()[1])


def _accept(listener: socket.socket, number: int, target: int) -> None:
    while True:
        near, _ = listener.accept()
        threading.Thread(target=_connect, args=(near, number, target), daemon=True).start()


def _connect(near: socket.socket, number: int, target: int) -> None:
    """Pass bytes both ways until one side ends."""
    _wait(number)
    try:
        far = socket.create_connection(("127.0.0.1", target))
    except OSError:
        near.close()
        return
    with near, far:
        back = threading.Thread(target=_pump, args=(far, near, number), daemon=True)
        back.start()
        _pump(near, far, number)
        back.join()


def _pump(source: socket.socket, sink: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            _wait(number)
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


def _wait(number: int) -> None:
    while is_blocked(number):
        time.sleep(0.05)


def main() -> None:
    """Run camu; the nodes that it starts reach the SuperLink through proxies."""
    from camu.cli import main as run_camu
    from camu.deploy.host.local import LocalDeployment

    start_node = LocalDeployment.start_node
    ports: dict[int, int] = {}

    def start_behind_proxy(self: LocalDeployment, number: int) -> None:
        if number not in ports:
            ports[number] = open_proxy(number, self.port)
        start_node(replace(self, port=ports[number]), number)

    LocalDeployment.start_node = start_behind_proxy  # type: ignore[method-assign]
    run_camu()


if __name__ == "__main__":
    main()
