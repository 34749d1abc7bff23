"""Configuration: schema, presets, and the difference from the paper.  Imports neither torch nor verl."""
