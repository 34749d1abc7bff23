"""One official ALFWorld environment behind a pipe.  This file is run by the interpreter that has `alfworld`.

It imports nothing of seedlab, since that interpreter need not have it: `python worker.py [--memoise]`.  Each line of
standard input is a JSON request, each line of standard output its JSON answer; whatever libraries print goes to
standard error.  The process ends with its standard input, so it never outlives the process that started it.

Requests: {"op": "versions" | "rules" | "reset" | "usage"}, {"op": "load", "game": path or game data},
{"op": "step", "command": text}, {"op": "plan"}.  An answer is a JSON object; one with the key "error" is a failure.
"""

import copy
import functools
import importlib.metadata
import importlib.resources
import json
import os
import resource
import sys
import time
import traceback

# What the memoisation was written for and compared with: another version is refused rather than patched blindly.
MEMOISED_VERSION = "1.7.0"


def memoise():
    """Keep what the engine computes again and again: parsed templates, translated problems, copies of constant names.

    Texts and commands stay the same (there is a test); a step then takes about half of the time, a reset a tenth.
    """
    found = importlib.metadata.version("textworld")
    if found != MEMOISED_VERSION:
        raise RuntimeError(f"--memoise is for textworld {MEMOISED_VERSION}, this is {found}; run without it")
    import fast_downward
    import textworld.envs.pddl.textgen as textgen
    from textworld.generator.game import EntityInfo
    from textworld.logic import Placeholder, Variable

    parse, parsed = textgen._parse_and_convert, {}

    def parse_once(text, rule_name, trace=False):
        if (text, rule_name) not in parsed:
            parsed[text, rule_name] = parse(text, rule_name=rule_name, trace=trace)
        return copy.deepcopy(parsed[text, rule_name])  # the engine writes into what it gets

    textgen._parse_and_convert = parse_once
    translate = fast_downward.pddl2sas

    @functools.lru_cache(maxsize=4)
    def translate_once(domain, problem, verbose=False, optimize=False):
        return translate(domain, problem, verbose=verbose, optimize=optimize)

    fast_downward.pddl2sas = translate_once
    for constant in (EntityInfo, Placeholder, Variable):  # never changed once a game is loaded
        constant.__deepcopy__ = lambda self, memo: self


class Worker:
    """Answers requests about one environment."""

    def __init__(self):
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos
        from textworld import EnvInfos
        from textworld.envs import PddlEnv

        infos = EnvInfos(won=True, admissible_commands=True, extras=["gamefile"])
        self.env = AlfredInfos(AlfredDemangler(PddlEnv(infos), shuffle=False))

    def versions(self):
        return {name: importlib.metadata.version(name) for name in ("alfworld", "textworld", "fast-downward-textworld")}

    def rules(self):
        """The domain and the grammar that a new game file needs, as the installed package has them."""
        data = importlib.resources.files("alfworld") / "data"
        return {"domain": (data / "alfred.pddl").read_text(), "grammar": (data / "alfred.twl2").read_text()}

    def load(self, game):
        start = time.process_time()
        self.env.load(game)
        return {"cpu_s": time.process_time() - start}

    def reset(self):
        start = time.process_time()
        state = self.env.reset()
        return {**_shown(state), "score": 0, "done": False, "cpu_s": time.process_time() - start}

    def step(self, command):
        start = time.process_time()
        state, score, done = self.env.step(command)
        return {**_shown(state), "score": score, "done": done, "cpu_s": time.process_time() - start}

    def plan(self):
        """Winning commands from the present state by the engine's own planner; empty where it finds none."""
        inner = self.env.unwrapped
        return {"commands": list(inner._pddl_state.replan(inner._entity_infos))}

    def usage(self):
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {"cpu_s": used.ru_utime + used.ru_stime, "peak_kb": used.ru_maxrss}


def _shown(state):
    return {"feedback": state.feedback, "admissible": list(state.admissible_commands), "won": bool(state.won)}


def main():
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print must not stand between answers
    sys.stdout = sys.stderr
    worker = None
    for line in sys.stdin:
        try:
            request = json.loads(line)
            if worker is None:
                if "--memoise" in sys.argv[1:]:
                    memoise()
                worker = Worker()
            answer = getattr(worker, request.pop("op"))(**request)
        except Exception as error:  # reported to the other side, which raises it with the task's name
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
