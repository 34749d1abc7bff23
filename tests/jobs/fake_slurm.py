"""sbatch, squeue, scancel, scontrol and srun as far as seedlab uses them, for tests: one small controller per job.

State lies in $FAKE_SLURM: ID.json, and `hold`, which keeps jobs pending as long as it exists.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(os.environ["FAKE_SLURM"])
SBATCH_OPTIONS = {
    "job-name", "nodes", "ntasks-per-node", "signal", "output", "open-mode", "requeue", "time", "partition", "gpus-per-node",
}  # fmt: skip


def read(number):
    return json.loads((ROOT / f"{number}.json").read_text())


def change(number, **fields):
    file = ROOT / f"{number}.json"
    value = (json.loads(file.read_text()) if file.exists() else {}) | fields
    partial = file.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(value))
    os.replace(partial, file)


def log(*words):
    with open(ROOT / "calls.txt", "a") as out:
        out.write(" ".join(words) + "\n")


def sbatch(arguments):
    if arguments[0] != "--parsable":
        sys.exit("fake sbatch: --parsable expected")
    script = arguments[-1]
    options = [line.removeprefix("#SBATCH --").split("=") for line in Path(script).read_text().splitlines() if line.startswith("#SBATCH")]
    unknown = {o[0] for o in options} - SBATCH_OPTIONS
    if unknown or (ROOT / "refuse").exists():
        print(f"sbatch: error: {unknown or 'Batch job submission failed: Invalid account'}", file=sys.stderr)
        sys.exit(1)
    number = str(1000 + len(list(ROOT.glob("*.json"))))
    change(number, script=script, output=dict(o for o in options if len(o) == 2)["output"].strip('"'), state="PENDING", pid=0, starts=0, requeue=False)
    log("sbatch", number)
    subprocess.Popen([sys.executable, __file__, "_control", number], start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    print(number)


def control(number):
    while True:
        while (ROOT / "hold").exists():
            if read(number)["state"] == "CANCELLED":
                return
            time.sleep(0.02)
        job = read(number)
        if job["state"] == "CANCELLED":
            return
        env = os.environ | {"SLURM_JOB_ID": number, "SLURM_RESTART_COUNT": str(job["starts"])}
        with open(job["output"], "a") as out:
            child = subprocess.Popen(["bash", job["script"]], env=env, start_new_session=True, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        change(number, pid=child.pid, state="RUNNING", starts=job["starts"] + 1)
        code = child.wait()
        if not read(number)["requeue"]:
            change(number, state="COMPLETED" if code == 0 else "FAILED", code=code)
            return
        change(number, state="PENDING", requeue=False, pid=0, code=code)


def squeue(arguments):
    number = next(a.split("=")[1] for a in arguments if a.startswith("--jobs="))
    if not (ROOT / f"{number}.json").exists():
        print("slurm_load_jobs error: Invalid job id specified", file=sys.stderr)
        sys.exit(1)
    state = read(number)["state"]
    if state in ("PENDING", "RUNNING"):
        print(state)


def scancel(arguments):
    job = read(arguments[-1])
    log("scancel", arguments[-1])
    if job["state"] == "PENDING":
        change(arguments[-1], state="CANCELLED")
    elif job["pid"]:
        os.killpg(job["pid"], signal.SIGKILL)


def scontrol(arguments):
    if arguments[:2] == ["show", "hostnames"]:
        print(arguments[2].replace(",", "\n"))
        return
    if (ROOT / "no-requeue").exists():
        print("Requested operation is presently disabled", file=sys.stderr)
        sys.exit(1)
    log("requeue", arguments[-1])
    change(arguments[-1], requeue=True)


def srun(arguments):
    log("srun", *arguments)
    rest = [a for a in arguments if not a.startswith("--")] if "--" not in arguments else arguments[arguments.index("--") + 1 :]
    first = arguments.index(rest[0])
    os.execvp(arguments[first], arguments[first:])


if __name__ == "__main__":
    name, *rest = sys.argv[1:]
    {"sbatch": sbatch, "squeue": squeue, "scancel": scancel, "scontrol": scontrol, "srun": srun, "_control": lambda r: control(r[0])}[name](rest)
