"""A table of the keys of nodes and the devices that they are for."""

from __future__ import annotations

from pathlib import Path

from camu.deploy.host.control import Registration
from camu.deploy.server.mailbox import binding
from camu.errors import InputError
from camu.world.tables import read_trace

HEADER = ("key", "devices")


def read_registrations(path: Path) -> list[Registration]:
    """The keys of a CSV file with the columns `key`, a file, and `devices`, as in `a,b` or empty.

    Keys are relative to the table. A key or a device that comes twice is refused.
    """
    table = read_trace(path, "--table", HEADER)
    found: list[Registration] = []
    seen: dict[str, str] = {}
    for row, place in zip(table.rows, table.places, strict=True):
        key, devices = str(row["key"]).strip(), str(row["devices"]).strip()
        try:
            name = binding(devices.split(",")) if devices else Path(key).stem
        except InputError:
            raise InputError(
                f"{path}, {place}, column devices: name each device once, as in a,b,c"
            ) from None
        for what in (f"the key {key}", *(f"device {d.strip()}" for d in devices.split(",") if d)):
            if what in seen:
                raise InputError(f"{path}, {place}: {what} is in {seen[what]}, too")
            seen[what] = place
        found.append(Registration(path.parent / key, name))
    return found
