"""Connects to a Ray cluster, or starts Ray on this machine, and leaves neither behind changed."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import socket
import warnings
from collections.abc import Iterator

from camu.config import Config
from camu.errors import CamuError, InputError
from camu.learning.pool import available_cores

ANSWER_SECONDS = 5.0


@contextlib.contextmanager
def engine_session(config: Config, address: str | None) -> Iterator[None]:
    """Keep Ray connected inside the block if the configuration trains on it.

    `address` is that of `connected`; with another engine it is refused.
    """
    if config.machine.engine != "ray":
        if address is not None:
            raise InputError(
                f'--address {address}: machine.engine is "{config.machine.engine}"; add --set '
                "machine.engine=ray, or leave --address out"
            )
        yield
        return
    with connected(address, config.machine.workers):
        yield


@contextlib.contextmanager
def connected(address: str | None = None, processors: int = 0) -> Iterator[None]:
    """A connection to Ray inside the block.

    `address` is HOST:PORT of a cluster that this machine is part of; it keeps running. Without an
    address, Ray is started on this machine with so many `processors` (0: all cores) and ended with
    the block. If this process is connected already, that connection is used and kept.
    """
    require_ray()
    import ray

    if ray.is_initialized():
        yield
        return
    if address is not None:
        _check_address(address)
    else:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would report its use
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # about accelerators; none are asked for
            ray.init(
                address=address or "local",
                num_cpus=None if address else processors or available_cores(),
                include_dashboard=None if address else False,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
    except (OSError, RuntimeError, ValueError) as error:
        ray.shutdown()
        if address is None:
            raise CamuError(f"Ray cannot be started on this machine ({error})") from error
        raise _no_answer(address, str(error)) from error
    try:
        yield
    finally:
        ray.shutdown()


def require_ray() -> None:
    """Refuse to go on if Ray is not installed; call it before Ray is imported."""
    # Ray prints on stdout when an actor dies, and reads once, at its import, what not to print.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
    if importlib.util.find_spec("ray") is None:
        raise InputError("engine ray: install the extra with pip install 'camu-fl[ray]'")


def _check_address(address: str) -> None:
    """Refuse an address that is incomplete or where nothing listens; Ray would take a minute."""
    host, _, port = address.rpartition(":")
    if not host or "/" in address or not (port.isdecimal() and 0 < int(port) < 65536):
        raise InputError(f"--address {address}: give HOST:PORT as `ray start --head` printed it")
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS).close()
    except OSError as error:
        raise _no_answer(address, error.strerror or str(error)) from error


def _no_answer(address: str, reason: str) -> CamuError:
    return CamuError(
        f"--address {address}: no Ray cluster answers there ({reason}); run this command on a "
        "machine of the cluster"
    )
