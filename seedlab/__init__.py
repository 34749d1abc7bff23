"""seedlab: self-evolving on-policy distillation, from a laptop to eight GPUs.

Importing the package loads neither torch nor transformers.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("seedlab")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0.1.0+source"


def __getattr__(name: str):
    # On first use only: reading runs needs pandas, and `import seedlab` does not.
    if name == "open_run":
        from seedlab.store import open_run

        return open_run
    raise AttributeError(f"module 'seedlab' has no attribute {name!r}")
