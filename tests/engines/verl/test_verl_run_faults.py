"""One run under real Ray that is stopped, starved and killed in turn, goes on each time, and ends where a quiet one ends.

Update 0 loses an episode to a hanging environment and is followed by SIGTERM; each fault after it strikes in update 1.
The tests share the run's folder; each leaves it resumable, and the last one finishes it.
"""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest
import verl_faults
from verl_runs import LIMIT_S, TWO_RANKS, assert_same_course, local_run

from seedlab.analysis.checks import check_run
from seedlab.config.presets import load_config
from seedlab.envs import make_family
from seedlab.envs.protocol import InfrastructureError
from seedlab.store import open_run
from seedlab.store.checkpoint import latest_checkpoint
from seedlab.train.tasks import tasks_of_update

pytestmark = [pytest.mark.full, pytest.mark.timeout(2 * LIMIT_S + 200)]
COLLECTIVE_S = 60.0
RUN = ("initial=base", "method=grpo", "evaluation.panels=[dev]")
LIMITS = ("cluster.episode_timeout_s=20", f"cluster.collective_timeout_s={COLLECTIVE_S}")
GONE = "is gone (ActorDiedError); the run stops and can be resumed"


class Place:
    """A run folder, the faults that wait for it, and starts of it."""

    def __init__(self, python: str, cache: Path, top: Path):
        self.python, self.cache, self.run, self.faults, self.log = python, cache, top / "run", top / "faults", top / "log"
        self.faults.mkdir()
        train = make_family(load_config("micro").env).panels()["train"]
        task = tasks_of_update(train, seed=0, update=0, tasks_per_update=2)[0]
        self.lost = f"u000000/{task}/n1"
        (self.faults / "hang").write_text(self.lost)

    def start(self, *argv) -> subprocess.Popen:
        here = Path(__file__).parent
        variables = {
            "PYTHONPATH": f"{here.parents[2]}{os.pathsep}{here}", "SEEDLAB_CACHE": str(self.cache), "OMP_NUM_THREADS": "1",
            verl_faults.FOLDER: str(self.faults),
        }  # fmt: skip
        env = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"} | variables
        with open(self.log, "wb") as out:
            return subprocess.Popen([self.python, here / "verl_faults.py", *map(str, argv)], stdout=out, stderr=out, env=env)

    def resume(self) -> subprocess.Popen:
        return self.start("resume", self.run)

    def status(self) -> dict:
        file = self.run / "status.json"
        return json.loads(file.read_text()) if file.exists() else {}

    def send_in_rollout(self, process: subprocess.Popen, number: int) -> None:
        """Signal the run in the rollouts of its next update."""
        deadline = time.monotonic() + LIMIT_S
        while (status := self.status()).get("pid") != process.pid or status["phase"] != "stage 2: rollout":
            assert process.poll() is None and time.monotonic() < deadline, self.words()
            time.sleep(0.1)
        process.send_signal(number)

    def end(self, process: subprocess.Popen) -> int:
        """The exit code; no process of the run is left a little later (Ray's helpers see a SIGKILL of the run with a delay)."""
        code = process.wait(LIMIT_S)
        until = time.monotonic() + 120
        while left := self.processes():
            assert time.monotonic() < until, left
            time.sleep(0.5)
        return code

    def processes(self) -> list[str]:
        """Whatever inherited the run's environment, children of children and orphans too."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(verl_faults.FOLDER) == str(self.faults):
                    found.append(f"{process.pid} {process.name()}")
            except psutil.Error:  # another user's, or ended since it was listed
                continue
        return found

    def words(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]


@pytest.fixture(scope="module")
def place(verl_python, own_cache, tmp_path_factory):
    """Stopped by SIGTERM in update 0, in which one environment hangs."""
    place = Place(verl_python, own_cache, tmp_path_factory.mktemp("verl-faults"))
    process = place.start("train", "micro", *RUN, *TWO_RANKS, *LIMITS, "--out", place.run)
    place.send_in_rollout(process, signal.SIGTERM)
    assert place.end(process) == 130, place.words()
    yield place
    assert place.processes() == []


def test_sigterm_saves_a_checkpoint_after_the_update_and_a_hung_environment_costs_one_episode(place):
    status = place.status()
    assert (status["state"], status["exit_code"], status["error"]) == ("interrupted", 130, "stopped after update 1 of 2")
    run = open_run(place.run)
    assert latest_checkpoint(place.run)[0] == 1 and run.updates == [0]
    trajectories = run.trajectories(0).set_index("id")
    lost = trajectories[trajectories["infra_failure"] != ""]
    assert list(lost.index) == [place.lost]
    assert lost["infra_failure"].item() == "the episode did not end within 20 s (cluster.episode_timeout_s)"
    assert (trajectories.drop(place.lost)["steps"] > 0).all() and len(trajectories) == 8
    assert place.lost not in set(run.tokens(update=0)["trajectory"]) and run.metrics["optim/steps"].tolist() == [2.0]


@pytest.mark.parametrize(
    "fault, words",
    [
        ("memory", "update 1: out of memory (torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
        ("trainer", f"training worker 0 {GONE}"),
        ("server", f"rollout server {{}} {GONE}"),  # whichever comes first to its third request
        ("agent", f"agent-loop worker 0 {GONE}"),
    ],
    ids=["memory", "trainer", "server", "agent"],
)
def test_a_fault_ends_the_run_with_its_cause_and_leaves_nothing_behind(place, fault, words):
    """Without an end to collectives and a look after the processes, verl would wait for ever in each of these."""
    (place.faults / fault).touch()
    process = place.resume()
    assert place.end(process) == 1, place.words()
    status, struck = place.status(), (place.faults / f"{fault}.taken").stat().st_ctime
    assert status["state"] == "failed" and any(words.format(n) in status["error"] for n in (0, 1)), status
    assert status["ended"] - struck < COLLECTIVE_S
    assert latest_checkpoint(place.run)[0] == 1 and open_run(place.run).updates == [0]
    if fault == "memory":
        assert "lower stage2.micro_batch_tokens=2048" in status["error"] and "from its checkpoint of update 1" in status["error"]
        assert "Traceback" not in status["error"]


def test_the_killed_run_takes_its_processes_with_it_and_goes_on_to_the_end_of_a_quiet_one(place, own_cache, tmp_path, monkeypatch):
    process = place.resume()
    place.send_in_rollout(process, signal.SIGKILL)
    assert place.end(process) == -signal.SIGKILL
    assert open_run(place.run).updates == [0]

    process = place.resume()
    assert place.end(process) == 0, place.words()
    run = open_run(place.run)

    def lose():
        raise InfrastructureError("lost, as the hung one")

    from seedlab.episodes import play

    monkeypatch.setattr(play, "_run", verl_faults.losing(play._run, place.lost, lose))
    assert_same_course(run, local_run(tmp_path / "local", own_cache, *RUN))
    assert run.metrics["update"].tolist() == [0, 1] and run.metrics["rollout/infra_failures"].tolist() == [1.0, 0.0]
    assert not [r for r in check_run(place.run) if r.state == "failed"]
