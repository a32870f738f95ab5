"""The user's own code: import it by name, report its errors, and digest its source.

Everywhere a class or function of the user is accepted (a scheme, a model, a data set, a partition,
a path loss, a solver), it is named as ``module:name`` or ``path/to/file.py:name``.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, cast

from camu.errors import CamuError, InputError, UserCodeError, suggest

_CAMU = Path(__file__).resolve().parent
_LIBRARIES = tuple(
    {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib")}
)
HUGGING_FACE = "hf:"  # begins the name of a data set of Hugging Face `datasets`, which is no code
# Workers may ask for the same module at the same time; an import changes sys.path for a moment.
_IMPORTING = threading.RLock()


def is_plugin(name: str) -> bool:
    """Whether a value of the configuration names the user's own code (``module:name``)."""
    return ":" in name and not name.startswith(HUGGING_FACE)


def is_path(name: str) -> bool:
    """Whether a value that may name code or data looks like the path of data."""
    if is_plugin(name) and name.rpartition(":")[2].isidentifier():
        return False
    written = "/" in name or os.sep in name or name.endswith((".npz", ".csv", ".parquet"))
    return written and not name.startswith(HUGGING_FACE)


def import_object(path: str, key: str) -> Any:
    """The object behind ``module:name``, ``./file.py:name`` or ``/abs/file.py:name``.

    The current directory is searched before installed packages. `key` is the configuration key or
    option that holds `path`; errors name it.
    """
    module_name, name = _split(path, key)
    if _is_file(module_name) and not Path(module_name).expanduser().is_file():
        raise InputError(f"{key} = {path}: there is no file {module_name}")
    try:
        with _IMPORTING:
            module = _import(module_name)
    except CamuError as error:  # a class of theirs that camu refuses
        raise InputError(f"{key} = {path}: {error}") from error
    except BaseException as error:  # any error of the user's module during its import
        if isinstance(error, KeyboardInterrupt) and not _is_raised_in_words(error):
            raise
        searched = "; modules are searched in the current directory and among installed packages"
        raise InputError(
            f"{key} = {path}: module {module_name} cannot be imported ({describe_error(error)})"
            f"{'' if _is_file(module_name) else searched}"
        ) from error
    if not hasattr(module, name):
        public = [
            other
            for other, thing in vars(module).items()
            if not other.startswith("_") and getattr(thing, "__module__", None) == module.__name__
        ]
        raise InputError(
            f"{key} = {path}: module {module_name} has no {name}{suggest(name, public)}; "
            f"it has {', '.join(public) or 'no classes or functions'}"
        )
    return getattr(module, name)


def import_method(path: str, key: str, method: str, settings: object) -> Callable[..., Any]:
    """The user's function, or `method` of the user's class, constructed with `settings`."""
    found = import_object(path, key)
    if isinstance(found, type):
        with user_code(f"{key} = {path}", found, "(self, settings)"):
            found = found(settings)
    call = getattr(found, method, found)
    if not callable(call):
        raise InputError(
            f"{key} = {path}: this is neither a function nor a class with a method {method}"
        )
    return cast(Callable[..., Any], call)


@contextlib.contextmanager
def user_code(what: str, thing: object = None, arguments: str = "") -> Iterator[None]:
    """Turn an exception of the user's own code inside the block into a `UserCodeError`.

    Its message is "WHAT: mine.py, line 68, in plan: ZeroDivisionError: division by zero". `thing`
    is the object whose code runs, and `arguments` names the values that it gets. CamuError and
    Ctrl-C pass unchanged, and so do all errors if `thing` is one of camu's own.
    """
    try:
        yield
    except CamuError:
        raise
    except BaseException as error:
        # Ctrl-C passes, and so does the end of a generator of camu's around this block.
        theirs = isinstance(error, Exception | SystemExit) or _is_raised_in_words(error)
        if isinstance(error, KeyboardInterrupt) or not theirs:
            raise
        kind = thing if isinstance(thing, type) else type(thing)
        module = str(getattr(thing, "__module__", None) or kind.__module__)
        if thing is not None and (module == "camu" or module.startswith("camu.")):
            raise
        raise UserCodeError(f"{what}: {describe_error(error, thing, arguments)}") from error


@contextlib.contextmanager
def same_directory(what: str) -> Iterator[None]:
    """Refuse a user's code that leaves the working directory, because outputs are named from it."""
    before = os.getcwd()
    yield
    if (now := os.getcwd()) != before:
        os.chdir(before)
        raise UserCodeError(f"{what}: it changed the working directory to {now}; use full paths")


def source_digest(path: str, key: str = "source") -> str:
    """SHA-256 (hex) of the source behind ``module:name``, with the modules next to it it imports.

    Covered are the module's file and, recursively, every module that these files import from the
    same package or, unless it is a directory of installed packages, from the same directory.
    """
    module = _loaded(path, key)
    if not getattr(module, "__file__", None):
        return hashlib.sha256(module.__name__.encode()).hexdigest()
    total = hashlib.sha256()
    for name, file in sorted(_module_sources(module).items()):
        total.update(f"{name}\x1f{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()


def own_modules(path: str, key: str) -> list[ModuleType]:
    """The loaded modules behind ``module:name``, with the modules next to it that it imports.

    There are none if it is installed as a package.
    """
    module = _loaded(path, key)
    if not getattr(module, "__file__", None) or _in_library(str(module.__file__)):
        return []
    files = set(_module_sources(module).values())
    return [
        loaded
        for loaded in list(sys.modules.values())
        if getattr(loaded, "__file__", None) and Path(str(loaded.__file__)).resolve() in files
    ]


def own_files(path: str) -> list[Path]:
    """The files behind ``module:name``, with those next to it that they import; none is loaded."""
    module_name = path.rpartition(":")[0]
    try:
        if _is_file(module_name):
            file = Path(module_name).expanduser().resolve()
            return list(_sources(file.stem, file).values())
        with _IMPORTING, _searched(Path.cwd()):
            spec = importlib.util.find_spec(module_name.partition(".")[0])
        places = [] if spec is None else list(spec.submodule_search_locations or ())
        if spec is not None and spec.has_location:
            places = places or [str(spec.origin)]
        found = [_locate(Path(place).resolve().parent, module_name) for place in places]
        return [f for file in found if file for f in _sources(module_name, file).values()]
    except (ImportError, OSError, RuntimeError, ValueError):  # it is reported where it is loaded
        return []


def _loaded(path: str, key: str) -> ModuleType:
    module_name, _ = _split(path, key)
    import_object(path, key)
    return sys.modules[_registered_name(module_name)]


def _split(path: str, key: str) -> tuple[str, str]:
    module_name, colon, name = path.rpartition(":")
    if not (colon and module_name and name):
        hint = missing_name(path) or "name your own code as module:name or ./file.py:name"
        raise InputError(f"{key} = {path}: {hint}")
    return module_name, name


def missing_name(path: str) -> str:
    """What to add to the path of a Python file so that it names code; "" for any other text."""
    if not path.endswith(".py"):
        return ""
    file = Path(path).expanduser()
    if not file.is_file():
        return f"there is no file {path}"
    try:
        statements = ast.parse(file.read_bytes()).body
    except (SyntaxError, ValueError) as error:
        return f"{path} is not valid Python: {error}"
    kinds = (ast.ClassDef, ast.FunctionDef)
    names = [node.name for node in statements if isinstance(node, kinds) and node.name[0] != "_"]
    return f"add :NAME; the file has {', '.join(names) or 'no classes or functions'}"


def importable_name(module_name: str) -> str:
    """What `import_object` takes for a module in sys.modules: its name, or the path of its file."""
    return str(sys.modules[module_name].__file__) if "@" in module_name else module_name


def _is_file(module_name: str) -> bool:
    return module_name.endswith(".py") or "/" in module_name


def _registered_name(module_name: str) -> str:
    """The name in sys.modules; a file gets one that no other module can have."""
    if not _is_file(module_name):
        return module_name
    file = Path(module_name).expanduser().resolve()
    return f"{file.stem}@{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"


def _import(module_name: str) -> ModuleType:
    if not _is_file(module_name):
        with _searched(Path.cwd()):
            return importlib.import_module(module_name)
    name = _registered_name(module_name)
    if name in sys.modules:
        return sys.modules[name]
    file = Path(module_name).expanduser().resolve()
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{module_name} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with _searched(file.parent):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextlib.contextmanager
def _searched(directory: Path) -> Iterator[None]:
    """Search a directory for modules inside the block, before all others."""
    here = str(directory)
    added = here not in sys.path
    if added:
        sys.path.insert(0, here)
        importlib.invalidate_caches()
    try:
        yield
    finally:
        if added and here in sys.path:
            sys.path.remove(here)


def describe_error(error: BaseException, thing: object = None, arguments: str = "") -> str:
    """An error with the place in the user's code: "mine.py, line 3, in plan: ValueError: ...".

    `thing` is the object whose code ran. If it cannot take its `arguments`, the place is the
    definition.
    """
    said = str(error)
    text = f"{type(error).__name__}: {said}" if said else type(error).__name__
    own, installed = _users_frames(error)
    if not own and isinstance(error, TypeError) and (called := _called(said, thing)):
        wanted = arguments or _base_arguments(called.__name__, thing)
        code = called.__code__
        place = f"{_shown(code.co_filename)}, line {code.co_firstlineno}"
        hint = f"; its arguments must be {wanted}" if wanted else ""
        return f"{place}, in {called.__name__}: {text}{hint}"
    if not own and not installed:
        return text
    # A user's package may be installed: it is the first one that camu called.
    frame = own[-1] if own else installed[0]
    function = "" if frame.name == "<module>" else f", in {frame.name}"
    return f"{_shown(frame.filename)}, line {frame.lineno}{function}: {text}"


def _shown(filename: str) -> str:
    file = Path(filename)
    return str(file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file)


_Frames = list[traceback.FrameSummary]


def _users_frames(error: BaseException) -> tuple[_Frames, _Frames]:
    """The frames outside camu, outermost first: those of no library, and those of libraries."""
    outside = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<")
        and not Path(frame.filename).resolve().is_relative_to(_CAMU)
        and "importlib" not in frame.filename
    ]
    own = [frame for frame in outside if not _in_library(frame.filename)]
    return own, [frame for frame in outside if frame not in own]


def _is_raised_in_words(error: BaseException) -> bool:
    """Whether a statement ``raise`` of the user raised this, not Ctrl-C or Python itself."""
    own, _ = _users_frames(error)
    return bool(own) and "raise" in (own[-1].line or "").split()


def _in_library(filename: str) -> bool:
    file = Path(filename).resolve()  # the environment may be a link
    return any(file.is_relative_to(directory) for directory in _LIBRARIES)


def _called(said: str, thing: object) -> FunctionType | None:
    """The user's function that the error of a call names, if it is `thing` or one of its methods.

    The error begins with the function: "Mine.plan() takes 1 positional argument but 2 ...".
    """
    words = re.match(r"(?:.*?\.)?(\w+)\(\) (?:takes|missing|got)", said)
    if words is None:
        return None
    function: Any = thing if inspect.isroutine(thing) else getattr(thing, words[1], None)
    function = inspect.unwrap(getattr(function, "__func__", function))
    if not inspect.isfunction(function) or function.__name__ != words[1]:
        return None
    # A decorator such as dataclass makes functions without a file.
    return None if function.__code__.co_filename.startswith("<") else function


def _base_arguments(name: str, thing: object) -> str:
    """The arguments of a method as camu's base class has it; "" if there is none."""
    kind = thing if isinstance(thing, type) else type(thing)
    for base in kind.__mro__:
        if base.__module__.startswith("camu.") and inspect.isfunction(vars(base).get(name)):
            return f"({', '.join(inspect.signature(vars(base)[name]).parameters)})"
    return ""


def _module_sources(module: ModuleType) -> dict[str, Path]:
    file = Path(str(module.__file__)).resolve()
    return _sources(file.stem if "@" in module.__name__ else module.__name__, file)


def _sources(name: str, file: Path) -> dict[str, Path]:
    """The files of a module and of its neighbours that it imports, by their path in the root."""
    is_package = file.name == "__init__.py"
    depth = len(name.split(".")) - (0 if is_package else 1)
    root = file.parents[depth]
    top = name.split(".")[0] if root in _LIBRARIES else None
    found: dict[str, Path] = {}
    waiting = [name]
    seen = set(waiting)
    while waiting:
        current = waiting.pop()
        place = _locate(root, current)
        if place is None:
            continue
        found[str(place.relative_to(root))] = place
        for imported in _imported(current, place):
            if imported not in seen and (top is None or imported.split(".")[0] == top):
                seen.add(imported)
                waiting.append(imported)
    return found


def _locate(root: Path, name: str) -> Path | None:
    base = root.joinpath(*name.split("."))
    for file in (base.with_name(base.name + ".py"), base / "__init__.py"):
        if file.is_file():
            return file
    return None


def _imported(name: str, file: Path) -> set[str]:
    """The modules that a source file may import, by absolute name, with their packages."""
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    names: set[str] = {package} if package else set()
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # what cannot be loaded imports nothing
        return names
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            above = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
            origin = ".".join(part for part in (above, node.module or "") if part)
            names.add(origin)
            names.update(f"{origin}.{alias.name}" for alias in node.names)
    parents = {".".join(n.split(".")[:i]) for n in names for i in range(1, n.count(".") + 1)}
    return {n for n in names | parents if n}
