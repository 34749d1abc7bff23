"""seedlab: self-evolving on-policy distillation, from a laptop to eight GPUs.

Importing the package loads neither torch nor transformers.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("seedlab")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0.1.0+source"


# On first use only: reading runs needs pandas, and `import seedlab` does not.
_HOMES = {
    "open_run": "seedlab.store", "watch": "seedlab.views.watching", "inspect_tokens": "seedlab.views.inspector",
    "run_cards": "seedlab.views.cards",
}  # fmt: skip


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module 'seedlab' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
