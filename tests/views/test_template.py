import math
import re

from seedlab.views.template import STYLE, Raw, details, escape, number, page, paragraph, table

HOSTILE = """</script><script>alert(1)</script><img src=x onerror=alert(1)>"' & <|end|>"""


def test_everything_but_raw_is_escaped():
    for made in (paragraph(HOSTILE), table([HOSTILE], [[HOSTILE]]), details(HOSTILE, ""), page(HOSTILE, "", [(HOSTILE, HOSTILE, "")])):
        assert "<script>alert" not in made and "<img" not in made and "&lt;/script&gt;" in made
    assert '"' not in escape(HOSTILE) and "'" not in escape(HOSTILE)
    assert table(["a"], [[Raw("<b>x</b>")]]).count("<b>x</b>") == 1


def test_numbers_columns_and_soft_rows():
    made = table(["name", "value"], [["a", 1], ["b", 2]], numbers=[1], soft=[1])
    assert made.count('<td class="n">') == 2 and '<th class="n">value</th>' in made and made.count("<tr class=sub>") == 1


def test_an_undefined_number_is_a_dash():
    assert [number(x) for x in (None, math.nan, 0.0, 1 / 3)] == ["—", "—", "0.000", "0.333"]


def test_the_page_forbids_every_request():
    made = page("t", "", [])
    assert "default-src 'none'" in made and made.index("Content-Security-Policy") < made.index("<style>")


def test_every_colour_of_the_page_has_a_dark_twin():
    light, dark = (dict(re.findall(r"--(\w+):(#\w+)", STYLE.split(start)[1].split("}")[0])) for start in (":root{color-scheme", "dark){:root{"))
    assert light.keys() == dark.keys() and all(light[k] != dark[k] for k in light)
    assert set(re.findall(r"var\(--(ink|paper|soft|line|wash|link|note|bad)\)", STYLE)) == set(light)
