"""Lines as they are added to a file."""

from __future__ import annotations

from pathlib import Path


class Tail:
    """The whole lines that are added to a file; a rewritten file is read from its start."""

    def __init__(self, path: Path, skip_present: bool = False) -> None:
        self.path, self.place = path, 0
        if skip_present and path.exists():
            self.place = path.stat().st_size

    def lines(self) -> list[str]:
        """The lines added since the last call."""
        try:
            if self.path.stat().st_size < self.place:
                self.place = 0
            with self.path.open("rb") as stream:
                stream.seek(self.place)
                content = stream.read()
        except OSError:
            return []
        whole = content[: content.rfind(b"\n") + 1]
        self.place += len(whole)
        return whole.decode("utf-8", errors="replace").splitlines()
