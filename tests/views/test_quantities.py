import math

import pytest

from seedlab.views.quantities import NO_TEACHER, QUANTITIES, STEPS, ink, luminance, palettes, shade
from seedlab.views.template import visible

BY_KEY = {q.key: q for q in QUANTITIES}


@pytest.mark.parametrize(
    "key, domain", [("gate", (0, 1)), ("delta", (-2, 2)), ("advantage", (-2, 2)), ("net", (-2, 2)), ("logprob", (-5, 0)), ("ratio", (0.5, 1.5)), ("entropy", (0, 2))]
)
def test_domains_are_fixed(key, domain):
    q = BY_KEY[key]
    assert q.domain == domain
    assert q.colour(domain[0] - 9) == q.colour(domain[0]) and q.colour(domain[1] + 9) == q.colour(domain[1])
    assert q.colour(q.neutral) == "#ffffff" and q.colour(math.nan) == NO_TEACHER


def test_a_diverging_quantity_tells_the_sides_apart_and_a_sequential_one_has_one_side():
    assert [q.key for q in QUANTITIES if q.diverging] == ["delta", "advantage", "net", "ratio"]
    for q in QUANTITIES:
        low, high = q.domain
        assert q.share(low) == (-1.0 if q.diverging else float(q.full < q.neutral)) and q.share(high) == (0.0 if q.full < q.neutral else 1.0)


def test_every_shade_can_be_read_in_both_themes():
    for kinds in palettes().values():
        for shades in kinds.values():
            assert len(shades) == STEPS
            for background, letters in shades:
                bright, dim = sorted((luminance(background), luminance(letters)), reverse=True)
                assert (bright + 0.05) / (dim + 0.05) >= 4.5, (background, letters)


def test_the_palette_is_the_colour_function_at_even_places():
    light = palettes()["light"]
    assert light["diverging"][STEPS // 2][0] == "#ffffff" == light["sequential"][0][0]
    assert light["diverging"][0][0] == shade(-1.0) and light["diverging"][-1][0] == light["sequential"][-1][0] == shade(1.0)


def test_luminance_and_ink_at_the_ends():
    assert luminance("#ffffff") == pytest.approx(1.0) and luminance("#000000") == 0.0
    assert ink("#ffffff") == "#000000" and ink("#000000") == "#ffffff"


def test_what_cannot_be_seen_becomes_a_mark():
    assert visible("a\u202eb\u2028c\x00") == "a⟨U+202E⟩b⟨U+2028⟩c⟨U+0000⟩"
    assert visible("line\n\ttab é 猫 🙂 ½") == "line\n\ttab é 猫 🙂 ½"
    assert all(visible(mark) != mark for mark in "\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u2066\u2067\u2068\u2069\ufeff\x1b\x7f\u00ad")
