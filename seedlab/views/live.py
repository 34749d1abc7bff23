"""How a view appears in a notebook: the live widget where there is one, plain HTML without scripts everywhere else."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Protocol

MISSING = "The live view needs ipywidgets and anywidget (pip install 'seedlab[notebooks]'); this is its picture."


class View(Protocol):
    def widget(self): ...

    def _repr_html_(self) -> str: ...


def widgets_installed() -> bool:
    return all(find_spec(name) is not None for name in ("ipywidgets", "anywidget"))


def bundle(view: View) -> dict:
    """MIME bundle of a view: `text/html` is what stays in a saved, untrusted or printed notebook."""
    found = {"text/plain": repr(view), "text/html": view._repr_html_()}
    if not widgets_installed():
        found["text/html"] += f"<p>{MISSING}</p>"
        return found
    live = view.widget()._repr_mimebundle_()
    # anywidget gives (data, metadata), ipywidgets the data alone.
    data = live[0] if isinstance(live, tuple) else live
    return found | {kind: value for kind, value in data.items() if kind not in found}
