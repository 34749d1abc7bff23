"""The live watch: HTML widgets that a thread fills, and buttons.  The thread only sets traits; printing from it would
break the kernel's output."""

from __future__ import annotations

import threading
import weakref

import ipywidgets as w

from seedlab.errors import UserError
from seedlab.jobs import Job
from seedlab.views.template import escape
from seedlab.views.watch_state import WatchState
from seedlab.views.watching import parts

ENDED_FACTOR = 5  # a run that has ended is read this much more rarely: somebody may resume it
CONFIRM_S = 6.0


def live(view) -> w.VBox:
    """The widget of `view`, already being refreshed."""
    return _Live(view).box


class _Live:
    def __init__(self, view):
        self.view = view
        self._stopped = threading.Event()
        self._wake = threading.Event()
        self._asked = 0.0
        self.html = {name: w.HTML() for name in ("head", "curves", "skills", "log")}
        self.refresh = w.Button(description="Refresh", tooltip="Read the run folder now", icon="refresh")
        self.pause = w.ToggleButton(description="Stop watching", tooltip="The run goes on; only this view stops", icon="pause")
        self.cancel = w.Button(description="End the run …", tooltip="Asks once more; a trainer saves a checkpoint first", icon="stop")
        self.said = w.HTML()
        self.refresh.on_click(lambda _: self._read())
        self.pause.observe(self._paused, "value")
        self.cancel.on_click(lambda _: self._end())
        buttons = w.HBox([self.refresh, self.pause, self.cancel, self.said])
        self.box = w.VBox([self.html["head"], buttons, self.html["curves"], self.html["skills"], self.html["log"]])
        self.box.add_class("seedlab-watch")
        # The buttons' callbacks live as long as the box; the thread must not be what keeps it alive.
        self.box._seedlab = self
        self._show(view.state())
        threading.Thread(target=_follow, args=(weakref.ref(self), self._stopped, self._wake), name=f"watch {view.path.name}", daemon=True).start()

    # ---- reading

    def _read(self) -> WatchState:
        state = self.view.state()
        self._show(state)
        return state

    def _show(self, state: WatchState) -> None:
        made = parts(state)
        for name, widget in self.html.items():
            widget.value = made[name]  # an equal value sends nothing
        self.cancel.disabled = not (state.live and state.background)

    def pause_s(self, state: WatchState) -> float:
        """Seconds until the next reading."""
        waiting = state.live or state.state == "not there"
        return self.view.refresh_s * (1 if waiting else ENDED_FACTOR)

    # ---- buttons

    def _paused(self, change: dict) -> None:
        self.pause.description = "Watch again" if change["new"] else "Stop watching"
        if change["new"]:
            self._stopped.set()
            self._wake.set()
            return
        self._stopped, self._wake = threading.Event(), threading.Event()
        self._read()
        threading.Thread(target=_follow, args=(weakref.ref(self), self._stopped, self._wake), name=f"watch {self.view.path.name}", daemon=True).start()

    def _end(self) -> None:
        """The first click asks, a second one within a few seconds ends the job; another thread waits for it."""
        if self.cancel.description != "Really end it?":
            self.cancel.description = "Really end it?"
            timer = threading.Timer(CONFIRM_S, lambda: setattr(self.cancel, "description", "End the run …"))
            timer.daemon = True
            timer.start()
            return
        self.cancel.description = "End the run …"
        self.said.value = "ending: the trainer saves a checkpoint first …"
        threading.Thread(target=self._cancel_job, daemon=True).start()

    def _cancel_job(self) -> None:
        try:
            status = Job(self.view.path).cancel()
            self.said.value = f"the run is {escape(status['state'])}"
        except UserError as error:
            self.said.value = f"✕ {escape(error)}"
        self._read()


def _follow(reference: "weakref.ref[_Live]", stopped: threading.Event, wake: threading.Event) -> None:
    """Refresh until the view is stopped or gone."""
    while not stopped.is_set():
        live = reference()
        if live is None:
            return
        pause = live.pause_s(live._read())
        del live
        wake.wait(pause)
        wake.clear()
