"""Every word that household texts, commands and skills are made of: what a word-level tokenizer must know."""

from __future__ import annotations

import re

from seedlab.envs.household import names
from seedlab.envs.household.goals import SENTENCES
from seedlab.envs.household.texts import HELP, NOTHING_HAPPENS

_TEXTS = """
welcome to textworld alfred you are in the middle of a room looking quickly around see your task is
you arrive at on the closed open it nothing facing next pick up from move carrying not anything
clean heat cool using turn off sliced with this normal hot and cold there special about
go take examine use slice look inventory help close put
there first then both them one another or was found other places for
"""
_PIECES = re.compile(r"[a-z]+|'[a-z]+|[0-9]+|[^\sa-z0-9]")


def vocabulary() -> list[str]:
    """Lower-case words, numbers and punctuation marks, sorted.  `there's` counts as `there` and `'s`."""
    types = " ".join((*names.OBJECTS, *names.RECEPTACLES, *names.SCENERY))
    sentences = " ".join(text.format(object="", place="") for texts in SENTENCES.values() for text in texts)
    text = f"{_TEXTS} {types} {sentences} {HELP} {NOTHING_HAPPENS} 's . , : - = !".lower()
    numbers = (str(n) for n in range(1, names.LARGEST_NUMBER + 1))
    return sorted({*_PIECES.findall(text), *numbers})
