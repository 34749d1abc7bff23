"""ALFWorld's own observable texts, where they are more than a line in the engine."""

from __future__ import annotations

NOTHING_HAPPENS = "Nothing happens."
HELP = (
    "Available commands:\n"
    "  look:                             look around your current location\n"
    "  inventory:                        check your current inventory\n"
    "  go to (receptacle):               move to a receptacle\n"
    "  open (receptacle):                open a receptacle\n"
    "  close (receptacle):               close a receptacle\n"
    "  take (object) from (receptacle):  take an object from a receptacle\n"
    "  move (object) to (receptacle):  place an object in or on a receptacle\n"
    "  examine (something):              examine a receptacle or an object\n"
    "  use (object):                     use an object\n"
    "  heat (object) with (receptacle):  heat an object using a receptacle\n"
    "  clean (object) with (receptacle): clean an object using a receptacle\n"
    "  cool (object) with (receptacle):  cool an object using a receptacle\n"
    "  slice (object) with (object):     slice an object using a sharp object\n"
)


def listing(names: list[str]) -> str:
    """`a x, a y, and a z`; `nothing` for none."""
    if not names:
        return "nothing"
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + ", and " + names[-1]


def describe(name: str, carried: str | None, clean: bool, hot: bool, cool: bool, sliced: bool, on: bool) -> str:
    """What `examine` says of an object; `carried` lists what an object that can carry others holds."""
    if carried is not None:
        return f"This is a normal {name}. In it, you see {carried}."
    heat = "hot" if hot else "cool" if cool else ""
    if sliced and (clean or heat):
        return f"This is a {' and '.join(w for w in (heat, 'clean' if clean else '') if w)} sliced {name}."
    if clean and heat:
        return f"This is a {heat} and clean {name}."
    if clean or heat:
        # The grammar says "cold" in this one case.
        return f"This is a {'clean' if clean else 'hot' if hot else 'cold'} {name}."
    if on:
        return f"This {name} is on."
    return f"This is a sliced {name}." if sliced else f"There's nothing special about {name}."
