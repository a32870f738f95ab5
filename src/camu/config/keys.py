"""Every key of the configuration in words, for error messages, `camu config keys` and the docs."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from camu.config.sections import Region


@dataclass(frozen=True)
class Key:
    """One key: section, name, default, accepted values and meaning."""

    section: str
    name: str
    default: str
    accepts: str
    meaning: str


def describe_keys(model: type[BaseModel]) -> list[Key]:
    """All keys of a configuration model, section by section."""
    return [
        Key(section, name, _default(field), accepted_values(field), field.description or "")
        for section in model.model_fields
        for name, field in section_fields(model, section).items()
    ]


def as_markdown(model: type[BaseModel], keys: list[Key]) -> str:
    """The keys as a Markdown page, a table per section."""
    lines = [
        "# Configuration",
        "",
        "Every key of a configuration file, printed by `camu config keys --markdown`. "
        "Set a key in a TOML file under its section, or with `--set section.key=value`.",
        "",
        "A preset comes first, then the file (`-c FILE`), then `--set`; "
        "each goes over the one before. "
        'A file names its preset in its first line, `extends = "paper"`, or `--preset` does. '
        "A file without a preset starts from the defaults below; with neither a file nor a preset, "
        "the preset is `demo`. `camu config show` prints the result.",
    ]
    for section, field in model.model_fields.items():
        rows = [key for key in keys if key.section == section]
        if not rows:
            continue
        lines += ["", f"## `{section}`: {field.description}", ""]
        lines += ["| key | default | accepts | meaning |", "|---|---|---|---|"]
        for key in rows:
            cells = (f"`{key.name}`", f"`{key.default}`", key.accepts, key.meaning)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def _default(field: FieldInfo) -> str:
    value = field.default
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        if isinstance(value[0], Region):
            return " and ".join(f"{region.devices} in {region.name}" for region in value)
        return "[" + ", ".join(f"{number:g}" for number in value) + "]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def section_fields(model: type[BaseModel], section: str) -> dict[str, FieldInfo]:
    """The fields of a section by name."""
    kind = model.model_fields[section].annotation
    assert isinstance(kind, type)
    assert issubclass(kind, BaseModel)
    return kind.model_fields


def accepted_values(field: FieldInfo) -> str:
    """What a field takes, in words: its choices, or its type and limits."""
    schema = field.json_schema_extra
    unit = str(schema["unit"]) if isinstance(schema, dict) and schema.get("unit") else ""
    annotation = field.annotation
    choices = getattr(annotation, "__args__", ())
    if choices and all(isinstance(choice, str) for choice in choices):
        return " | ".join(choices)
    names = {
        "int": "a whole number",
        "float": "a number",
        "str": "text",
        "bool": "true or false",
        "NoneType": "none",
    }
    kinds = [a for a in choices if isinstance(a, type)] if choices else []
    words = [names[a.__name__] for a in kinds if a.__name__ in names]
    if isinstance(annotation, type) and annotation.__name__ in names:
        words = [names[annotation.__name__]]
    elif getattr(annotation, "__origin__", None) is tuple:
        words = [
            "a list of regions"
            if annotation == tuple[Region, ...]
            else f"a list of {len(choices)} numbers"
        ]
    elif getattr(annotation, "__origin__", None) is dict:
        words = ["a table"]
    limits = []
    for limit in field.metadata:
        for sign, attribute in ((">=", "ge"), (">", "gt"), ("<=", "le"), ("<", "lt")):
            if hasattr(limit, attribute):
                limits.append(f"{sign} {getattr(limit, attribute):g}")
    text = " or ".join(dict.fromkeys(word for word in words if word != "none"))
    if limits:
        text += " " + " and ".join(limits)
    if unit and unit != "1":
        text += f", unit {unit}"
    return f"{text}; or none" if "none" in words else text
