"""Selectors and sliders around the token map; every one of them calls a method of the inspector."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import ipywidgets as w

from seedlab.errors import UserError
from seedlab.views.template import escape
from seedlab.views.token_widget import TokenMap

_WIDE = w.Layout(width="auto", min_width="340px", flex="1 1 340px")
OUTCOMES = ("all", "success", "failure")
NOTHING = "nothing"


def controls(inspector) -> w.VBox:
    """The token map of `inspector` with its selectors above it and the typed skill below."""
    return _Controls(inspector).box


class _Controls:
    def __init__(self, inspector):
        self.inspector = inspector
        self.map = TokenMap(**inspector.state())
        self._quiet = False
        slider = {"continuous_update": False, "layout": w.Layout(width="320px"), "style": {"description_width": "60px"}}
        self.update = w.SelectionSlider(options=inspector.updates, value=inspector.update, description="update", **slider)
        self.outcome = w.ToggleButtons(options=OUTCOMES, value="all", style={"button_width": "72px"})
        self.task = w.Dropdown(description="task", layout=_WIDE)
        self.trajectory = w.Dropdown(description="trajectory", layout=_WIDE)
        self.beside = w.Dropdown(description="beside", layout=_WIDE)
        self.other_run = w.Text(description="other run", placeholder="folder of a run; Enter shows the same task there", continuous_update=False, layout=_WIDE)
        self.skill = w.Textarea(placeholder="Type a skill, and see the gates that it would give these very tokens.", rows=3, layout=w.Layout(width="auto"))
        self.snapshot = w.Dropdown(description="scored by", layout=w.Layout(width="260px"))
        self.score = w.Button(description="Recompute gates", button_style="primary")
        self.own = w.Button(description="Copy its own skill")
        self.said = w.HTML()
        self._fill_snapshots()
        self._fill()
        self._listen()
        typed = w.VBox([self.skill, w.HBox([self.snapshot, self.score, self.own])])
        rows = [
            w.HBox([self.update, self.outcome], layout=w.Layout(flex_flow="row wrap")),
            *([w.HTML(f"<span>{escape(inspector.stored_note)}</span>")] if inspector.stored_note else []),
            w.HBox([self.task, self.trajectory], layout=w.Layout(flex_flow="row wrap")),
            w.HBox([self.beside, self.other_run], layout=w.Layout(flex_flow="row wrap")),
        ]
        self.box = w.VBox([*rows, self.said, self.map, w.HTML("<b>Your own skill</b>"), typed])
        self.box.add_class("seedlab-inspector")

    def _listen(self) -> None:
        self.update.observe(lambda change: self._act(self._choose_update), "value")
        self.outcome.observe(lambda change: self._act(self._choose_outcome), "value")
        self.task.observe(lambda change: self._act(self._choose_task), "value")
        self.trajectory.observe(lambda change: self._act(self._choose_trajectory), "value")
        self.beside.observe(lambda change: self._act(self._choose_beside), "value")
        self.other_run.observe(lambda change: self._act(self._choose_run), "value")
        self.map.observe(lambda change: setattr(self.inspector, "quantity", change["new"]), "quantity")
        self.map.observe(self._remember, "focused")
        self.score.on_click(lambda _: self._act(self._score_typed))
        self.own.on_click(lambda _: setattr(self.skill, "value", self._own_skill()))

    def _remember(self, change: dict) -> None:
        at = change["new"]
        self.inspector.focused = self.inspector.stories[at["pane"]].tokens.iloc[at["index"]] if at else None

    def _act(self, action: Callable[[], None]) -> None:
        """Do it, show it, and say in words what went wrong; what a control sets in another one is not acted on again."""
        if self._quiet:
            return
        self._quiet = True
        self.said.value = ""
        try:
            action()
            self._fill()
            self.said.value = ""
        except UserError as error:
            self.said.value = f'<span style="color:#a33a00">✕ {escape(error)}</span>'
        finally:
            self._quiet = False
        self.map.show(self.inspector.state())

    # ---- what the controls offer

    def _fill(self) -> None:
        """Options and values of every selector, from what the inspector looks at."""
        quiet, self._quiet = self._quiet, True
        inspector, played = self.inspector, self._matching()
        row = inspector.story.trajectory
        tasks = played.drop_duplicates("task")
        self.task.options = [(f"{t['goal']}  ({t['task'].rpartition('/')[2]})", t["task"]) for t in tasks.to_dict("records")]
        self.task.value = row["task"]
        group = played[played["task"] == row["task"]]
        self.trajectory.options = [(_label(t), t["id"]) for t in group.to_dict("records")]
        self.trajectory.value = inspector.trajectory
        others = [(f"update {u}, the same task", u) for u in inspector.same_task_updates()]
        second = inspector.stories[1] if len(inspector.stories) > 1 else None
        shown = [] if second is None else [(second.title, second.title)]
        self.beside.options = [(NOTHING, NOTHING), *others, *shown]
        self.beside.value = NOTHING if second is None else second.title
        self.update.value = inspector.update
        self._quiet = quiet

    def _matching(self):
        """Trajectories of the update with the wanted outcome, and always the one that is looked at."""
        played, outcome = self.inspector.played, self.outcome.value
        if outcome == "all":
            return played
        return played[(played["success"] == (outcome == "success")) | (played["id"] == self.inspector.trajectory)]

    def _fill_snapshots(self) -> None:
        from seedlab.train.typed_skill import REFERENCE, nearest_snapshot, snapshots

        names = snapshots(self.inspector.run)
        self.snapshot.options = [("start of Stage 2" if n == REFERENCE else f"checkpoint before update {n}", n) for n in names]
        if names:
            wanted = self.inspector.checkpoint
            self.snapshot.value = wanted if wanted in names else nearest_snapshot(self.inspector.run, self.inspector.update)
            return
        self.score.disabled = self.skill.disabled = True
        self.skill.placeholder = NO_WEIGHTS

    def _own_skill(self) -> str:
        card = self.inspector.story.skill
        return card.text if card is not None else ""

    # ---- what they do

    def _choose_update(self) -> None:
        self.inspector.select(self.update.value)

    def _choose_outcome(self) -> None:
        wanted = self.outcome.value
        if wanted != "all" and self.inspector.story.trajectory["success"] != (wanted == "success"):
            found = self.inspector.played[self.inspector.played["success"] == (wanted == "success")]
            if found.empty:
                self.outcome.value = "all"
                raise UserError(f"update {self.inspector.update} has no {wanted}")
            self.inspector.select(self.inspector.update, found["id"].iloc[0])

    def _choose_task(self) -> None:
        group = self._matching()
        self.inspector.select(self.inspector.update, group[group["task"] == self.task.value]["id"].iloc[0])

    def _choose_trajectory(self) -> None:
        self.inspector.select(self.inspector.update, self.trajectory.value)

    def _choose_beside(self) -> None:
        chosen = self.beside.value
        if chosen == NOTHING:
            self.other_run.value = ""
        self.inspector.compare(chosen if isinstance(chosen, int) else None)

    def _choose_run(self) -> None:
        given = self.other_run.value.strip()
        self.inspector.compare(Path(given) if given else None)

    def _score_typed(self) -> None:
        self.said.value = "loading the weights and scoring …"
        self.inspector.score_skill(self.skill.value, self.snapshot.value)


NO_WEIGHTS = (
    "This run folder holds no weights, so that no skill can be scored; the recorded values need none. "
    "`seedlab example --out runs/my-example --keep-checkpoints` makes runs that hold them."
)


def _label(row: dict) -> str:
    outcome = "✓ success" if row["success"] else "✕ failure"
    return f"n{row['n']}: {outcome}, return {row['return']:g}, {row['steps']} steps"
