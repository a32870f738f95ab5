"""Load a user's own class by its import path, the current directory included."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from camu.errors import InputError


def import_class(path: str, key: str) -> type:
    """The class behind ``module:Class``; `key` is what the user set, for the error's sake."""
    module_name, colon, class_name = path.partition(":")
    if not (colon and module_name and class_name):
        raise InputError(f"{key} = {path}: write your own as module:Class")
    here = str(Path.cwd())
    added = here not in sys.path
    if added:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever the user's module raises while it is imported
        raise InputError(
            f"{key} = {path}: module {module_name} cannot be imported "
            f"({type(error).__name__}: {error}); it is looked for in the current directory and "
            "among installed packages"
        ) from error
    finally:
        if added and here in sys.path:
            sys.path.remove(here)
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        classes = [name for name, thing in vars(module).items() if isinstance(thing, type)]
        raise InputError(
            f"{key} = {path}: module {module_name} has no class {class_name}; "
            f"its classes are {', '.join(classes) or 'none'}"
        )
    return found
