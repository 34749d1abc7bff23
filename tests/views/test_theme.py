import json

import plotly.graph_objects as go
import plotly.io as pio

from seedlab.methods import METHODS
from seedlab.views import figures, theme


def test_every_method_has_a_style_of_its_own():
    assert set(METHODS) <= set(theme.METHOD_STYLES)
    colours = [colour for colour, _ in theme.METHOD_STYLES.values()]
    assert len(set(colours)) == len(colours)


def test_a_method_has_the_same_colour_in_every_view():
    assert figures.ROLE_COLOURS["seed-sft"] == theme.method_colour("seed") and figures.DASHES["grpo-base"] == theme.method_style("grpo")[1]
    assert theme.method_style("mine") == theme.method_style("mine") and theme.method_style("mine") in theme.SPARE_STYLES


def test_the_template_is_the_default_and_draws_titles_units_and_no_dark_half():
    assert pio.templates.default == "seedlab"
    layout = go.Figure().layout.template.layout
    assert layout.paper_bgcolor == layout.plot_bgcolor == "#ffffff" and layout.xaxis.automargin and layout.yaxis.title.standoff > 0


def test_no_renderer_offers_to_upload_a_figure():
    # What a notebook stores, and what every page that plotly writes for one says to plotly.js.
    figure = go.Figure(go.Scatter(y=[1, 2]))
    for name in ("plotly_mimetype", "jupyterlab", "notebook_connected", "vscode", "colab"):
        made = pio.renderers[name].to_mimebundle(figure.to_dict())
        text = json.dumps(made)
        assert "showSendToCloud" in text and "sendChartToCloud" in text, name
    stored = pio.renderers["plotly_mimetype"].to_mimebundle(figure.to_dict())["application/vnd.plotly.v1+json"]["config"]
    assert stored["showSendToCloud"] is False and stored["displaylogo"] is False and stored["plotlyServerURL"] == ""


def test_using_the_theme_keeps_what_the_user_has_configured():
    renderer = pio.renderers["iframe"]
    before = dict(renderer.config)
    renderer.config = {"scrollZoom": True, "displaylogo": True}
    try:
        theme.use()
        assert renderer.config["scrollZoom"] is True and renderer.config["displaylogo"] is True and renderer.config["showSendToCloud"] is False
    finally:
        renderer.config = before
