"""The presets that ship with camu, as TOML files."""
