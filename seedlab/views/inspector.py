"""The token inspector: one trajectory's tokens with every value, alone or beside another; a value that shows itself."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from seedlab.analysis.frames import token_updates
from seedlab.errors import UserError
from seedlab.store.errors import RunError
from seedlab.store.files import write_text
from seedlab.store.layout import located
from seedlab.store.reader import Run, open_run
from seedlab.views.inspector_fallback import fallback_html
from seedlab.views.quantities import QUANTITIES, STEPS, VALUES, palettes
from seedlab.views.standalone import standalone_page, token_map_module, token_map_style
from seedlab.views.token_heatmap import choose_trajectory
from seedlab.views.token_story import COLUMNS, SkillCard, Story, first_divergence, load_story

PAGE_TOKENS = 16_384  # above it the view is paged by turn
TYPED = "typed skill"


def inspect_tokens(
    run_or_path: Run | str | Path, *, update: int | None = None, trajectory: str | None = None,
    compare: Run | str | Path | int | None = None, checkpoint: str | int | None = None,
) -> "TokenInspector":
    """The tokens of one trajectory of a run, in the last line of a notebook's cell.

    Without `update`: the last one whose tokens are stored.  Without `trajectory`: the one with an accepted skill whose Δ
    varies most.  `compare`: another run (the same update, task and place in the group), or another update of this run
    that played the task, side by side.  `checkpoint`: weights of this run (the number of an update, or "reference")
    that score a typed skill; by default the newest not past the update.  Raises RunError naming what is not there.
    """
    run = run_or_path if isinstance(run_or_path, Run) else open_run(located(run_or_path))
    return TokenInspector(run, update=update, trajectory=trajectory, compare=compare, checkpoint=checkpoint)


class TokenInspector:
    """What is looked at (`run`, `update`, `trajectory`, `stories`) and how it shows itself.

    `select`, `compare` and `score_skill` change it; `widget()` is the live view, `to_html()` a page that stands alone.
    `focused` is the row of the token that was last clicked in the live view, or None.
    """

    def __init__(self, run: Run, *, update=None, trajectory=None, compare=None, checkpoint=None):
        self.run, self.checkpoint = run, None if checkpoint is None else str(checkpoint)
        self.quantity = "gate"
        self.focused: pd.Series | None = None  # the row of the token that was last clicked or reached with the keyboard
        self.remark = ""
        self._snapshot = None
        self.updates = token_updates(run)
        if not self.updates:
            raise RunError(f"{run.path} has no update with stored tokens yet: store.tokens={run.config.store.tokens}, {len(run.updates)} complete updates")
        if update is None and trajectory is not None:
            update = next((u for u in reversed(self.updates) if trajectory in set(run.trajectories(u)["id"])), None)
            if update is None:
                raise RunError(f"no update of {run.path} with stored tokens has the trajectory {trajectory!r}; stored: {_list(self.updates)}")
        self.select(self.updates[-1] if update is None else update, trajectory)
        if compare is not None:
            self.compare(compare)

    def __repr__(self) -> str:
        return f"TokenInspector({self.run.name}, update {self.update}, {self.trajectory}, {len(self.story.tokens)} tokens)"

    @property
    def story(self) -> Story:
        return self.stories[0]

    @property
    def stored_note(self) -> str:
        """Which updates can be looked at and which setting would have kept the others; empty where all are stored."""
        complete = len(self.run.updates)
        if len(self.updates) == complete:
            return ""
        wanted = self.run.config.store.tokens
        why = (
            "The others trained on no token."
            if wanted == "all"
            else f"The run's setting store.tokens={wanted} kept these; store.tokens=all keeps those of every update."
        )
        return f"Tokens of {_updates(self.updates)} are stored; the run has {complete} updates (0 to {self.run.updates[-1]}). {why}"

    # ---- what is looked at

    def select(self, update: int, trajectory: str | None = None) -> None:
        """Look at another trajectory; a comparison ends.  Raises RunError for an update without tokens."""
        if update not in self.updates:
            raise RunError(f"update {update} of {self.run.path} has no stored tokens. {self.stored_note or 'Stored: ' + _list(self.updates)}")
        self.played = self.run.trajectories(update)
        chosen = trajectory or self._choose(update)
        story = load_story(self.run, update, chosen)
        self.update, self.trajectory, self.stories, self.split, self.remark, self.focused = update, chosen, [story], None, "", None

    def _choose(self, update: int) -> str:
        found = choose_trajectory(self.run.tokens(update=update), self.run.skills(update))
        if found is None and self.played.empty:
            raise RunError(f"update {update} of {self.run.path} has no trajectory")
        return found or self.played["id"].iloc[0]

    def compare(self, other: Run | str | Path | int | None, update: int | None = None) -> None:
        """Put the same task beside it: of another run, or (a number) of another update of this run; None ends it.

        Raises RunError where the other one has no such task with stored tokens, naming the updates that have it.
        """
        self.stories, self.split, self.remark = self.stories[:1], None, ""
        if other is None:
            return
        if isinstance(other, int):
            run, wanted = self.run, other
        else:
            run = other if isinstance(other, Run) else open_run(located(other))
            wanted = self.update if update is None else update
        row = self.story.trajectory
        self._beside(load_story(run, wanted, _same_task(run, wanted, row["task"], row["n"])))

    def _beside(self, story: Story) -> None:
        self.stories = [self.story, story]
        self.split = first_divergence(*self.stories)

    def score_skill(self, text: str, checkpoint: str | int | None = None) -> pd.DataFrame:
        """Score `text` as the skill on these very tokens, under a checkpoint of the run, and show it beside the recorded
        values.  Returns the scored tokens.  Raises UserError where the checkpoint is gone."""
        from seedlab.train import typed_skill  # torch and transformers, which nothing else here needs

        name = checkpoint if checkpoint is not None else self.checkpoint
        if name is None:
            name = typed_skill.nearest_snapshot(self.run, self.update)
            if name is None:
                raise UserError(
                    f"{self.run.path} holds no weights, so that a skill cannot be scored; the recorded values need none. Runs of your own hold "
                    "them (stage2.keep_checkpoints); `seedlab example --keep-checkpoints` makes the runs that ship anew with theirs"
                )
        if self._snapshot is None or self._snapshot.name != str(name):
            self._snapshot = typed_skill.load_snapshot(self.run, name)
        record = next(t for t in self.run.records(self.update) if t.id == self.trajectory)
        result = typed_skill.score_skill(self._snapshot, record, text)
        self._beside(self._typed_story(text, result))
        self.split = None
        self.remark = "The same tokens on both sides: left as recorded during the update, right with your skill."
        return result.tokens

    def _typed_story(self, text: str, result) -> Story:
        kept = ["trajectory", "step", "position", "token_id", "text", "mask_policy", "mask_opd", "clipped", "minibatch", "logp_rollout", "advantage"]
        tokens = self.story.tokens[kept].merge(result.tokens.drop(columns="token_id"), on=["step", "position"], how="left")
        for column in COLUMNS:
            if column not in tokens:
                tokens[column] = float("nan")
        note = "; ".join(result.without_teacher)
        weights = "the weights Stage 2 started from" if result.checkpoint == "reference" else f"the checkpoint before update {result.checkpoint}"
        card = SkillCard("Your skill", text or "(empty)", None, "", f"Scored under {weights}." + (f" Not everywhere: {note}." if note else ""))
        return Story(f"{self.run.name}, {TYPED}", self.story.trajectory, tokens, self.story.turns, card, f"Values under {weights}.")

    def same_task_updates(self) -> list[int]:
        """Other updates with stored tokens that played this task."""
        task = self.story.trajectory["task"]
        return [u for u in self.updates if u != self.update and task in set(self.run.trajectories(u)["task"])]

    # ---- how it shows itself

    def state(self) -> dict:
        """The values of the widget's traits; `values` is [values, tokens] of every story in one block of float32."""
        return {
            "spec": spec(), "story": [story.spec() for story in self.stories], "quantity": self.quantity, "theme": "auto", "revision": 0,
            "values": b"".join(story.values().tobytes() for story in self.stories), "remark": self.remark,
            "split": {} if self.split is None else {
                "step": self.split.step, "kind": self.split.kind, "a": self.split.a, "b": self.split.b, "sentence": self.split.sentence,
            },
        }  # fmt: skip

    def to_html(self, path: str | Path | None = None) -> str | Path:
        """A page of its own: opens offline and asks for nothing.  With `path`, written there (its path is returned)."""
        title = f"{self.run.name}: {self.story.trajectory['goal']}"
        text = standalone_page(title, token_map_module(), token_map_style(), self.state(), self._repr_html_())
        if path is None:
            return text
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_text(Path(path), text)
        return Path(path)

    def widget(self):
        """The live view with its selectors; needs `pip install seedlab[notebooks]`."""
        from seedlab.views.inspector_controls import controls

        return controls(self)

    def _repr_html_(self) -> str:
        return fallback_html(self.stories, self.split, self.stored_note)

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        from seedlab.views.live import bundle

        return bundle(self)


def spec() -> dict:
    """What the widget's module needs to know of quantities and colours."""
    quantities = [
        {
            "key": q.key, "label": q.label, "column": q.column, "neutral": q.neutral, "full": q.full, "domain": list(q.domain),
            "unit": q.unit, "sentence": q.sentence, "diverging": q.diverging,
        }
        for q in QUANTITIES
    ]  # fmt: skip
    return {"quantities": quantities, "values": [list(v) for v in VALUES], "steps": STEPS, "palettes": palettes(), "page_tokens": PAGE_TOKENS}


def _same_task(run: Run, update: int, task: str, n: int) -> str:
    """The trajectory of `task` in that update: the same place in the group, else the first."""
    stored = token_updates(run)
    if update in stored:
        played = run.trajectories(update)
        found = played[played["task"] == task]
        if len(found):
            same = found[found["n"] == n]
            return (same if len(same) else found)["id"].iloc[0]
    having = [u for u in stored if task in set(run.trajectories(u)["task"])]
    hint = f"it was played in update {_list(having)}" if having else "no update of it with stored tokens played that task"
    raise RunError(f"update {update} of {run.path} has no stored tokens of {task}; {hint}")


def _updates(numbers: list[int]) -> str:
    return f"update {numbers[0]}" if len(numbers) == 1 else f"updates {_list(numbers)}"


def _list(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:12]))
    return (shown + (", …" if len(numbers) > 12 else "")) or "none"
