import base64
import math
import re
import xml.etree.ElementTree as ET

import pytest

from seedlab.views.svg import Chart, Series, draw, image, short, tick_labels, ticks

NAN = math.nan


def chart(values, **options):
    return Chart("Success", "share", (Series("a <b>", range(len(values)), values, "#0072B2"),), **options)


@pytest.mark.parametrize("low, high", [(0, 1), (0, 24), (-0.2, 0.13), (6.407, 6.421), (0, 1e-5), (1e6, 2e6)])
def test_ticks_are_round_inside_and_tell_themselves_apart(low, high):
    found = ticks(low, high)
    assert 2 <= len(found) <= 6 and all(low - 1e-9 <= t <= high + 1e-9 for t in found)
    assert len(set(tick_labels(found))) == len(found)


def test_ticks_of_a_share_are_quarters():
    assert ticks(0, 1) == [0.0, 0.25, 0.5, 0.75, 1.0] and tick_labels([0.0, 0.25]) == ["0.00", "0.25"]


def test_points_lie_where_their_values_are():
    made = draw(chart([0.0, 0.5, 1.0], limits=(0.0, 1.0)))
    places = [tuple(map(float, m)) for m in re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', made)]
    xs, ys = zip(*places)
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.11) and ys[0] - ys[1] == pytest.approx(ys[1] - ys[2], abs=0.11)
    assert ys[2] == pytest.approx(10.0)  # 1 is the upper edge


def test_a_gap_stays_a_gap_and_values_beyond_fixed_limits_stay_inside():
    made = draw(chart([0.1, 0.2, NAN, 0.3, 7.0], limits=(0.0, 1.0)))
    assert made.count("<polyline") == 2 and "nan" not in made and min(float(y) for y in re.findall(r'cy="([\d.]+)"', made)) == 10.0


def test_a_sparse_series_is_joined():
    series = Series("norm", range(5), [1.0, NAN, 2.0, NAN, 3.0], "#0072B2", sparse=True)
    assert draw(Chart("Norm", "1", (series,))).count("<polyline") == 1


def test_it_is_xml_escaped_and_says_its_numbers_in_words():
    made = draw(chart([0.25, 0.75]))
    root = ET.fromstring(made)
    assert root.get("aria-label") == "Success, share. a <b>: 0.25 at update 0, 0.75 at 1"
    assert "a &lt;b&gt;, update 1: 0.75" in made


def test_nothing_to_draw_and_constant_values_are_no_trouble():
    for values in ([], [NAN], [3.0], [0.0, 0.0], [-2.0, -2.0]):
        ET.fromstring(draw(chart(values)))


def test_a_band_surrounds_the_mean():
    series = Series("gate", [0, 1], [0.5, 0.5], "#0072B2", spread=[0.1, 0.2])
    made = draw(Chart("Gate", "1", (series,), (0.0, 1.0)))
    ys = [float(p.split(",")[1]) for p in re.search(r'<polygon points="([^"]+)"', made)[1].split()]
    assert ys[3] - ys[0] == pytest.approx(0.2 * 128, abs=0.2) and ys[2] - ys[1] == pytest.approx(0.4 * 128, abs=0.2)


def test_the_image_holds_the_same_drawing():
    c = chart([0.25, 0.75])
    data = re.search(r"base64,([^\"]+)", image(c))[1]
    assert base64.b64decode(data).decode() == draw(c, ink="#6b7684")


@pytest.mark.parametrize("value, text", [(0.0, "0"), (0.123456, "0.123"), (-2.5, "−2.5"), (12345.0, "1.2e+04"), (0.00001, "1.0e−05")])
def test_numbers_are_short(value, text):
    assert short(value) == text
