"""Pieces of a self-contained page: everything escaped, nothing fetched."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Sequence

# The browser itself then refuses every request, whatever the page holds.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:; "
    "base-uri 'none'; form-action 'none'"
)

STYLE = """
/* Light and dark; a token keeps dark ink, because its background is always pale to mid blue or orange. */
:root{color-scheme:light dark;--paper:#fff;--ink:#1d2430;--soft:#5b6575;--line:#d9dee6;--wash:#f5f7fa;--link:#0072b2;--note:#fff8e6;--bad:#fdeeea}
@media(prefers-color-scheme:dark){:root{--paper:#14181f;--ink:#e3e8ee;--soft:#9fabba;--line:#343d49;--wash:#1d232c;--link:#6db8ea;--note:#2b2616;--bad:#33211b}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1180px;padding:28px 24px 80px;font:15px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;color:var(--ink);background:var(--paper)}
h1{font-size:27px;margin:0 0 4px}h2{font-size:20px;margin:44px 0 8px;padding-top:14px;border-top:1px solid var(--line)}h3{font-size:16px;margin:22px 0 6px}
p{max-width:86ch;margin:8px 0}.soft{color:var(--soft)}
.verdict{background:var(--note);border-left:5px solid #e69f00;padding:10px 18px;margin:18px 0}.verdict p:first-child{font-weight:600}
.empty{background:var(--wash);border-left:4px solid #9aa5b4;padding:8px 14px;color:var(--soft)}
.warn{background:var(--bad);border-left:4px solid #d55e00;padding:8px 14px}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:13px;margin:8px 0 14px}
th,td{border-bottom:1px solid var(--line);padding:4px 10px;text-align:left;vertical-align:top;overflow-wrap:break-word}
th{background:var(--wash);font-weight:600}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
tr.sub td{color:var(--soft)}details{margin:4px 0 14px}summary{cursor:pointer;color:var(--soft);font-size:13px}
.pairs{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:0 26px}.pairs>div{min-width:0}nav{font-size:13px;margin:10px 0;display:flex;flex-wrap:wrap}nav a{margin-right:14px;white-space:nowrap;color:var(--link)}
.swatch{display:inline-block;width:11px;height:11px;border-radius:2px;margin-right:6px}
.columns{display:grid;grid-template-columns:minmax(0,2.4fr) minmax(240px,1fr);gap:22px}
.skill{border:1px solid var(--line);border-radius:6px;padding:10px 14px;background:var(--wash);align-self:start;position:sticky;top:12px;overflow-wrap:anywhere}
.turn{margin:0 0 10px}.turn .seen{color:var(--soft);font-size:13px;white-space:pre-wrap;overflow-wrap:anywhere}
.tokens{font:13px/2 ui-monospace,"DejaVu Sans Mono",monospace;white-space:pre-wrap;overflow-wrap:anywhere}
.t{padding:2px 0;color:#1d2430;outline:1px solid #e6eaf0}
#show-gate:checked~.columns .t{background:var(--gate)!important}#show-delta:checked~.columns .t{background:var(--delta)!important}
#show-advantage:checked~.columns .t{background:var(--advantage)!important}#show-net:checked~.columns .t{background:var(--net)!important}
#show-logprob:checked~.columns .t{background:var(--logprob)!important}#show-entropy:checked~.columns .t{background:var(--entropy)!important}
#show-ratio:checked~.columns .t{background:var(--ratio)!important}
.scales>span[class^=of-]{display:none}#show-gate:checked~.scales .of-gate,#show-delta:checked~.scales .of-delta,#show-advantage:checked~.scales .of-advantage,#show-net:checked~.scales .of-net,#show-logprob:checked~.scales .of-logprob,#show-entropy:checked~.scales .of-entropy,#show-ratio:checked~.scales .of-ratio{display:inline}
input[name=heat]+label{margin:0 12px 0 4px}
.scale{display:inline-block;width:190px;height:12px;vertical-align:middle;border:1px solid var(--line);margin:0 8px}
@media(max-width:800px){.columns,.pairs{grid-template-columns:minmax(0,1fr)}}
"""


# Characters that a reader cannot see, or that turn the order of the text round.
_INVISIBLE = re.compile("[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]")


def visible(text: str) -> str:
    """`text` with marks in place of characters that cannot be seen or that turn the order of the text round."""
    return _INVISIBLE.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)


def escape(text: object) -> str:
    """Safe inside an element and inside a quoted attribute, and `visible`."""
    return html.escape(visible(str(text)), quote=True)


def number(value: float | None, digits: int = 3) -> str:
    """A number for a cell; an em dash where it is undefined."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "—"
    return f"{value:.{digits}f}"


def paragraph(text: object, kind: str = "") -> str:
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def empty(text: object) -> str:
    """What stands where there is nothing to show, and why."""
    return paragraph(text, "empty")


class Raw(str):
    """HTML made by this package, put into a table cell as it is."""


def table(headers: Sequence[object], rows: Iterable[Sequence[object]], *, numbers: Iterable[int] = (), soft: Iterable[int] = ()) -> str:
    """Cells are escaped unless they are Raw; `numbers` are columns aligned right, `soft` rows shown paler."""
    right, pale = set(numbers), set(soft)

    def cell(tag: str, column: int, value: object) -> str:
        kind = ' class="n"' if column in right else ""
        return f"<{tag}{kind}>{value if isinstance(value, Raw) else escape(value)}</{tag}>"

    head = "".join(cell("th", i, h) for i, h in enumerate(headers))
    body = "".join(
        f"<tr{' class=sub' if r in pale else ''}>" + "".join(cell("td", i, v) for i, v in enumerate(row)) + "</tr>" for r, row in enumerate(rows)
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def details(summary: str, content: str) -> str:
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def section(name: str, title: str, *parts: str) -> str:
    return f'<section id="{escape(name)}"><h2>{escape(title)}</h2>{"".join(parts)}</section>'


def page(title: str, lead: str, sections: Sequence[tuple[str, str, str]], script: str = "") -> str:
    """The whole document; `sections` are (name, title, HTML).  `script` is inlined once, before the sections' own."""
    links = "".join(f'<a href="#{escape(name)}">{escape(heading)}</a>' for name, heading, _ in sections)
    body = "".join(section(name, heading, content) for name, heading, content in sections)
    code = f"<script>{script}</script>" if script else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>{code}</head><body>"
        f"<h1>{escape(title)}</h1>{lead}<nav>{links}</nav>{body}</body></html>\n"
    )
