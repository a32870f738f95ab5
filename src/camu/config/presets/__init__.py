"""The presets: their names here, apart from the models, and a TOML file each."""

PRESETS = ("demo", "paper", "study", "literal", "battery", "devices")
DEFAULT_PRESET = "demo"
