"""Colours of the studio: a contrast of at least 4.5 for texts, of 3 for borders of controls and marks (WCAG 2)."""

import re
from itertools import pairwise

import pytest

from saccade.studio.pages import STATIC

CSS = (STATIC / "studio.css").read_text(encoding="utf-8")
RAMPS = re.search(r"const RAMPS = \{(.*?)\};", (STATIC / "studio.js").read_text(encoding="utf-8"), re.DOTALL)[1]


def variables(theme):
    """Return the variables of a theme; the dark one changes some of those of the light one."""
    light, dark = (
        dict(re.findall(r"--([\w-]+):([^;]+);", re.search(rf"{re.escape(name)}\{{(.*?)\n\}}", CSS, re.DOTALL)[1]))
        for name in (":root", ":root.dark")
    )
    return light if theme == "light" else {**light, **dark}


def rgb(text):
    digits = text.strip().lstrip("#")
    digits = "".join(2 * digit for digit in digits) if len(digits) == 3 else digits
    return tuple(int(digits[at : at + 2], 16) for at in (0, 2, 4))


def luminance(colour):
    linear = [part / 3294 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first, second):
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def mixed(top, ground, opacity):
    return tuple(opacity * a + (1 - opacity) * b for a, b in zip(top, ground, strict=True))


def ramp(theme):
    """Return the colours of weights from 0 to 1."""
    stops = [tuple(map(int, stop.split(","))) for stop in re.findall(r"\[(\d[\d, ]+)\]", RAMPS)]
    stops = stops[:5] if theme == "light" else stops[5:]
    between = [mixed(high, low, part / 20) for low, high in pairwise(stops) for part in range(20)]
    return [*between, stops[-1]]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_can_be_read(theme):
    colours = {name: rgb(value) for name, value in variables(theme).items() if value.startswith("#")}
    for ground in ("paper", "panel"):
        for name in ("text", "soft", "ink"):
            assert contrast(colours[name], colours[ground]) >= 4.5, (name, ground)
    strength = float(variables(theme)["strength"])
    for tint in ("ink", "b"):
        for part in range(11):
            ground = mixed(colours[tint], colours["paper"], strength * part / 10)
            assert contrast(colours["text"], ground) >= 4.5, (tint, part)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_borders_of_controls_can_be_seen(theme):
    colours = variables(theme)
    for ground in ("paper", "panel"):
        assert contrast(rgb(colours["border"]), rgb(colours[ground])) >= 3
    for rule in ("button,select,input[type=text],input[type=number],textarea{", ".vector input{", ".tokens .token{"):
        assert "var(--border)" in CSS[CSS.index(rule) :].split("}")[0], rule


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_crosshair_and_numbers_can_be_seen_on_every_weight(theme):
    lines = [rgb(variables(theme)[name]) for name in ("cross-light", "cross-dark")]
    for colour in ramp(theme):
        assert max(contrast(line, colour) for line in lines) >= 3, colour
        text = (0, 0, 0) if luminance(colour) > 0.179 else (255, 255, 255)  # as shadeText chooses
        assert contrast(text, colour) >= 4.5, colour
