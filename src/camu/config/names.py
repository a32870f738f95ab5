"""The names of the presets, apart from the models, so that help pages load neither of them."""

PRESETS = ("demo", "paper", "study", "literal", "battery")
DEFAULT_PRESET = "demo"
