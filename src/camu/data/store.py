"""Load a data set: from a directory of the user's, the cache, or the first source that answers.

Every file is checked against its SHA-256 each time it is read. A wrong file in the cache is deleted
and fetched again; a missing or wrong file in the user's own directory is an error. Files are
written to a scratch directory and renamed, under a lock, so that a crash or a second process leaves
either a whole file or none.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from pathlib import Path

import numpy as np
import platformdirs

from camu.arrays import UInt8
from camu.config import DataConfig
from camu.data.catalog import CATALOG, Dataset, DatasetSpec, IdxFile, PlainFile
from camu.data.decoders import decoded, embedded
from camu.data.own import is_own, load_own, shape_spec
from camu.data.reading import Reading
from camu.data.sources import Source, SourceError, read_plain_or_gzip
from camu.data.standardise import standardised_spec
from camu.errors import CamuError, InputError, suggest
from camu.files import expanded, shown
from camu.work import Progress, silent

log = logging.getLogger(__name__)


def load_configured(data: DataConfig) -> Dataset:
    """Load the configured data set; it is standardised once the devices have their samples."""
    return load(data.dataset, data.directory, Reading.of(data))


def load(name: str, directory: str | Path | None = None, reading: Reading | None = None) -> Dataset:
    """Load a data set by name, or your own by path, ``module:function`` or ``hf:NAME``.

    The files of a built-in one come from `directory`; without it from the cache, to which they are
    fetched if they are missing. `reading` says how your own is read.
    """
    reading = reading or Reading()
    if is_own(name):
        if directory is not None:
            raise InputError(
                f"data.directory = {shown(directory)}: only the built-in data sets are read from "
                f"there; leave it out with data.dataset = {name}"
            )
        return load_own(name, reading)
    spec = find_spec(name)
    reading.refuse_columns(name, "is built in; leave it out")
    if reading.target not in ("auto", spec.target):
        raise InputError(
            f'data.target = "{reading.target}": the targets of data.dataset = {name} are '
            f"{spec.target}; leave data.target out"
        )
    if not spec.files:
        if directory is not None:
            raise InputError(
                f"data.directory = {shown(directory)}: {name} is embedded and has no files; leave "
                "data.directory out, or name the data set of the files in data.dataset"
            )
        return embedded(spec)
    if directory is not None:
        return decoded(spec, _from_user(spec, Path(directory)))
    if (arrays := _from_cache(spec)) is None:
        fetch(spec)
        arrays = _from_cache(spec)
    if arrays is None:
        raise CamuError(
            f"{name}: {cache_directory(spec)} changed while it was being read; try again"
        )
    return decoded(spec, arrays)


def dataset_spec(data: DataConfig) -> DatasetSpec:
    """What the configured data set holds; your own is loaded to know it.

    Images that are standardised are numbers, always with channels.
    """
    if is_own(data.dataset):
        spec = shape_spec(data.dataset) or load_configured(data).spec
    else:
        spec = find_spec(data.dataset)
    return standardised_spec(spec) if data.standardise else spec


def find_spec(name: str) -> DatasetSpec:
    """The catalogue entry of a data set."""
    if name not in CATALOG:
        raise InputError(
            f"{name}: no such data set{suggest(name, CATALOG)}; there are {', '.join(CATALOG)}"
        )
    return CATALOG[name]


def cache_root() -> Path:
    """Where data sets are kept: $CAMU_DATA, or the platform's cache directory."""
    return expanded(os.environ.get("CAMU_DATA") or platformdirs.user_cache_dir("camu"), "CAMU_DATA")


def cache_directory(spec: DatasetSpec) -> Path:
    """Where this data set's files are kept."""
    return cache_root() / spec.name


def is_cached(spec: DatasetSpec) -> bool:
    """Whether every file is in the cache with its right size (digests are checked on loading)."""
    folder = cache_directory(spec)
    return all(
        (folder / file.name).is_file() and (folder / file.name).stat().st_size == file.total_bytes
        for file in spec.files
    )


def fetch(spec: DatasetSpec, progress: Progress = silent) -> str:
    """Bring the files into the cache from the first source that delivers; returns what it did.

    `progress` gets the source's name, the bytes that have come, and the bytes of all files.
    """
    from filelock import FileLock  # most runs find their files and need no lock

    folder = cache_directory(spec)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_suffix(".lock")):
            if _from_cache(spec) is not None:
                return "already cached"
            failures = []
            for source in spec.sources:
                lack = source.missing()
                try:
                    if lack:
                        raise SourceError(lack)
                    _fetch_from(source, spec, folder, progress)
                except SourceError as error:
                    log.warning("%s: %s: %s", spec.name, source.describe(), error)
                    failures.append(f"{source.describe()}: {error}")
                else:
                    return f"fetched from {source.describe()}"
    except OSError as error:
        raise CamuError(
            f"{spec.name}: {folder} cannot be written ({error.strerror}); "
            "set CAMU_DATA to a directory that can"
        ) from None
    raise CamuError(
        f"{spec.name} is not cached and no source delivered it ({'; '.join(failures)}); either put "
        f"its files (plain or .gz) in a directory and name it by --set data.directory=DIR, or "
        f"set CAMU_DATA to a directory whose subdirectory {spec.name} holds them, or connect this "
        f"machine and run `camu data fetch {spec.name}`"
    )


def _fetch_from(source: Source, spec: DatasetSpec, folder: Path, progress: Progress) -> None:
    """Fetch into a scratch directory next to the cache, verify there, then rename into place."""
    what, done = f"{spec.name} from {source.describe()}", 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        progress(what, done, spec.download_bytes)

    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{spec.name}-") as name:
        scratch = Path(name)
        source.fetch({file.name: file.total_bytes for file in spec.files}, scratch, advance)
        for file in spec.files:
            _verified(np.fromfile(scratch / file.name, np.uint8), file, source.describe())
        for file in spec.files:
            os.replace(scratch / file.name, folder / file.name)


def _from_user(spec: DatasetSpec, directory: Path) -> list[UInt8]:
    """All arrays in catalogue order from the user's own files; whatever is wrong is an error."""
    key = f"data.directory = {shown(directory)}"
    remedy = "correct it, or leave data.directory out to use the cache"
    if not os.path.isdir(directory):
        raise InputError(f"{key}: no such directory; {remedy}")
    arrays = []
    for file in spec.files:
        try:
            content = read_plain_or_gzip(directory, file.name, file.total_bytes)
            if content is None:
                raise InputError(
                    f"{key}: {file.name} is missing, and {file.name}.gz too; the data set "
                    f"{spec.name} needs it: {remedy}"
                )
            # A copy, because an array over bytes is read-only and torch warns about those.
            own = np.frombuffer(content, np.uint8).copy()
            arrays.append(_verified(own, file, str(directory)))
        except SourceError as error:
            raise InputError(f"{key}: {error}: {remedy}") from None
        except OSError as error:
            raise InputError(f"{key}: {file.name} cannot be read ({error.strerror})") from None
    return arrays


def _from_cache(spec: DatasetSpec) -> list[UInt8] | None:
    """All arrays in catalogue order, or None if a file is missing or was wrong and is deleted."""
    folder = cache_directory(spec)
    arrays = []
    for file in spec.files:
        path = folder / file.name
        try:
            if not path.is_file():
                return None
            # One byte more than expected is enough to refuse a file that is too long.
            content = np.fromfile(path, np.uint8, file.total_bytes + 1)
            arrays.append(_verified(content, file, str(folder)))
        except SourceError as error:
            log.warning("%s: %s", spec.name, error)
            path.unlink(missing_ok=True)
            return None
        except OSError as error:
            raise CamuError(f"{path}: cannot be read ({error.strerror})") from None
    return arrays


def _verified(content: UInt8, file: IdxFile | PlainFile, origin: str) -> UInt8:
    """The array of an IDX file, or the bytes of another, after its digest has been checked."""
    found = hashlib.sha256(content.data).hexdigest()
    if found != file.sha256:
        raise SourceError(
            f"{file.name} from {origin} is refused: expected SHA-256 {file.sha256} "
            f"({file.total_bytes} bytes), found {found} ({content.size} bytes)"
        )
    if isinstance(file, PlainFile):
        return content
    return content[file.header_bytes :].reshape(file.shape)
