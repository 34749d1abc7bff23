"""A page of its own around a widget's module: the same script, a small model in place of the kernel, nothing fetched."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from seedlab.views.template import escape

_STATIC = Path(__file__).parent / "static"


def token_map_module() -> str:
    """Source of the token map: its parts and the map itself, as one module, since a widget is one."""
    return "".join((_STATIC / name).read_text(encoding="utf-8") for name in ("token_parts.js", "token_map.js"))


def token_map_style() -> str:
    return (_STATIC / "token_map.css").read_text(encoding="utf-8")


# The part of a widget's model that the modules use, over plain values.
_SHIM = """
const state = JSON.parse(document.getElementById("state").textContent);
for (const name of state.bytes) state.values[name] = Uint8Array.from(atob(state.values[name]), (c) => c.charCodeAt(0));
const listeners = {};
const model = {
  get: (name) => state.values[name],
  set: (name, value) => { state.values[name] = value; (listeners["change:" + name] || []).forEach((call) => call()); },
  save_changes: () => {},
  on: (event, call) => { (listeners[event] = listeners[event] || []).push(call); },
  off: (event, call) => { listeners[event] = (listeners[event] || []).filter((other) => other !== call); },
};
const place = document.getElementById("view");
widget.render({ model, el: place });
"""
_PAGE_STYLE = (
    ":root{color-scheme:light dark}body{margin:0 auto;max-width:1500px;padding:18px;font:15px/1.5 system-ui,sans-serif;background:#fff;color:#1d2430}"
    "h1{font-size:22px;margin:0 0 12px}@media(prefers-color-scheme:dark){body{background:#0f1318;color:#e3e8ee}}"
)


def json_in_script(value: object) -> str:
    """JSON that no text in it can break out of a script element, or out of a line of script."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def standalone_page(title: str, module: str, style: str, state: Mapping[str, object], fallback: str) -> str:
    """The document.  `module` is the widget's source, `state` its values (bytes among them), `fallback` what stands in
    its place where no script runs.  The page's own policy lets this very script run, no other, and no request."""
    plain = {name: base64.b64encode(value).decode() if isinstance(value, bytes) else value for name, value in state.items()}
    payload = json_in_script({"values": plain, "bytes": [name for name, value in state.items() if isinstance(value, bytes)]})
    script = module.replace("export default", "const widget =") + _SHIM
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; script-src 'sha256-{allowed}'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_PAGE_STYLE}{style}</style></head><body><h1>{escape(title)}</h1>"
        f'<div id="view">{fallback}</div><script type="application/json" id="state">{payload}</script>'
        f'<script type="module">{script}</script></body></html>\n'
    )
