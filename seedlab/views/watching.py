"""`watch`: a run as it goes on, in a cell that does not block; finished, failed, lost and future runs too."""

from __future__ import annotations

import threading
from pathlib import Path

from seedlab.store.files import write_text
from seedlab.store.layout import located
from seedlab.store.reader import Run
from seedlab.views import watch_html
from seedlab.views.svg import image
from seedlab.views.template import escape
from seedlab.views.watch_state import Watcher, WatchState

PAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def watch(run_or_path: Run | str | Path, *, refresh_s: float = 2.0) -> "WatchView":
    """A live view of a run folder, in the last line of a notebook's cell: curves, progress, log and skills.

    The folder need not exist yet.  The cell ends at once; a thread reads the folder every `refresh_s` seconds, and more
    rarely once the run has ended, so that a resumed one is seen.  Raises ValueError for a `refresh_s` that is not above 0.
    """
    if not refresh_s > 0:
        raise ValueError(f"refresh_s must be above 0, got {refresh_s}")
    return WatchView(run_or_path.path if isinstance(run_or_path, Run) else run_or_path, refresh_s=refresh_s)


class WatchView:
    """One run under watch.  `state()` reads it now; `to_html()` is a page of this moment; displaying it is live."""

    def __init__(self, path: str | Path, *, refresh_s: float = 2.0):
        # Absolute, so that the view survives a change of the notebook's folder.
        self.path, self.refresh_s = located(path).absolute(), refresh_s
        self._watcher = Watcher(self.path)
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        state = self.state()
        progress = f", {state.updates_done} of {state.planned} updates" if state.planned else ""
        return f"WatchView({self.path}: {state.state}{progress})"

    def state(self) -> WatchState:
        """A reading of the folder at this moment; safe from any thread."""
        with self._lock:
            return self._watcher.read()

    def to_html(self, path: str | Path | None = None) -> str | Path:
        """A page of its own, of this moment: no script, no request.  With `path`, written there (its path is returned)."""
        state = self.state()
        text = (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{PAGE_POLICY}">'
            f"<title>{escape(state.title or state.path.name)}</title>"
            "<style>:root{color-scheme:light dark}body{margin:0 auto;max-width:1120px;padding:20px}</style></head><body>"
            f"{''.join(parts(state).values())}{watch_html.numbers(state)}</body></html>\n"
        )
        if path is None:
            return text
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_text(Path(path), text)
        return Path(path)

    def widget(self):
        """The live view with its buttons; needs `pip install seedlab[notebooks]`."""
        from seedlab.views.watch_controls import live

        return live(self)

    def _repr_html_(self) -> str:
        state = self.state()
        # A saved notebook drops SVG elements; as images the curves stay.
        made = [watch_html.head(state), watch_html.curves(state, image), watch_html.skills(state), watch_html.log(state)]
        return "".join(made) + watch_html.numbers(state)

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        from seedlab.views.live import bundle

        return bundle(self)


def parts(state: WatchState) -> dict[str, str]:
    """The pieces of the view by name, in order; each is replaced only where it changed."""
    return {"head": watch_html.head(state), "curves": watch_html.curves(state), "skills": watch_html.skills(state), "log": watch_html.log(state)}
