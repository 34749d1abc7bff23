"""The anywidget behind the token inspector: traits in, the focused token out."""

from __future__ import annotations

import anywidget
import traitlets

from seedlab.views.standalone import token_map_module, token_map_style


class TokenMap(anywidget.AnyWidget):
    """`story` and `values` change together, and `revision` says so: the view draws anew when it changes.

    `values` [values, tokens] is one block of float32 for all stories; `focused` is the token that was clicked or reached
    with the keyboard: {pane, index, step, position}.
    """

    _esm = token_map_module()
    _css = token_map_style()

    spec = traitlets.Dict().tag(sync=True)
    story = traitlets.List().tag(sync=True)
    values = traitlets.Bytes(b"").tag(sync=True)
    split = traitlets.Dict().tag(sync=True)
    remark = traitlets.Unicode("").tag(sync=True)
    quantity = traitlets.Unicode("gate").tag(sync=True)
    theme = traitlets.Unicode("auto").tag(sync=True)
    focused = traitlets.Dict().tag(sync=True)
    revision = traitlets.Int(0).tag(sync=True)

    def show(self, state: dict) -> None:
        """Take over a whole state, as `TokenInspector.state` gives it, in one message."""
        with self.hold_sync():
            for name, value in state.items():
                if name not in ("spec", "quantity", "theme", "revision"):
                    setattr(self, name, value)
            self.revision += 1
