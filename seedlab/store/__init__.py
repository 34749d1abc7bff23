"""The run folder: writer, reader, checkpoints and the registry of metrics."""

from seedlab.store.errors import RunError
from seedlab.store.reader import Run, alive, open_run
from seedlab.store.writer import RunWriter

__all__ = ["Run", "RunError", "RunWriter", "alive", "open_run"]
