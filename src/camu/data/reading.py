"""What the configuration says of how data of the user's are read."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from camu.config import DataConfig
from camu.errors import InputError

TargetChoice = Literal["auto", "classes", "numbers", "next-token"]


@dataclass(frozen=True)
class Reading:
    """The keys of `[data]` that say what targets are, and which columns or arrays hold what."""

    target: TargetChoice = "auto"
    target_column: str | None = None
    label_column: str | None = None
    device_column: str | None = None
    input_columns: str | None = None

    @classmethod
    def of(cls, data: DataConfig) -> Reading:
        """What a configuration says."""
        columns = (data.target_column, data.label_column, data.device_column, data.input_columns)
        return cls(data.target, *columns)

    @property
    def inputs(self) -> list[str]:
        """The columns of inputs that are named."""
        return [own.strip() for own in (self.input_columns or "").split(",") if own.strip()]

    def refuse_columns(self, name: str, why: str, *keys: str) -> None:
        """Refuse columns (by default any) for data that have none; `why` ends the sentence."""
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if value is not None and (not keys or field.name in keys):
                raise InputError(f"data.{field.name} = {value}: data.dataset = {name} {why}")
