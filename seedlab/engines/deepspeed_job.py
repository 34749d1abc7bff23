"""What the processes of a DeepSpeed training are given: a folder with documents, batches and settings.  No DeepSpeed here."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from seedlab.config.schema import ClusterConfig, ModelConfig
from seedlab.errors import UserError
from seedlab.store.process import alive, own_start
from seedlab.train.diverged import Diverged
from seedlab.train.room import ran_out, words
from seedlab.train.sft import Document, SftSettings

# pid and start of the process that started the training, for its workers
PARENT = "SEEDLAB_SFT_PARENT"


def parent_mark() -> str:
    return f"{os.getpid()} {own_start()}"


def parent_lives(environment: Mapping[str, str]) -> bool:
    """Whether the process that started the training still runs: workers whose launcher was killed would go on beside the
    ones of the next start."""
    pid, _, started = environment[PARENT].partition(" ")
    return alive(int(pid), started)


@dataclass(frozen=True)
class SftJob:
    """`policy` is a Hugging Face folder or hub id; `batches` name documents by index."""

    folder: Path
    policy: str
    model: ModelConfig
    cluster: ClusterConfig
    threads: int
    settings: SftSettings
    documents: list[Document]
    batches: list[list[int]]


CAUSE = "cause.json"


def tell(folder: Path, error: Exception) -> None:
    """Leave a cause that the user can mend for the process that started the training; the first of the workers is heard."""
    if not (isinstance(error, Diverged) or ran_out(error)):
        return
    told = {"diverged": isinstance(error, Diverged), "words": words(error)}
    try:
        with open(folder / CAUSE, "x", encoding="utf-8") as out:
            json.dump(told, out)
    except FileExistsError:
        return


def told(folder: Path) -> Exception | None:
    """The error that a worker left with `tell`: Diverged, or MemoryError."""
    file = folder / CAUSE
    if not file.exists():
        return None
    cause = json.loads(file.read_text(encoding="utf-8"))
    return (Diverged if cause["diverged"] else MemoryError)(cause["words"])


def write_job(job: SftJob) -> None:
    """Write everything, the settings last: a folder without them is not a job yet."""
    job.folder.mkdir(parents=True, exist_ok=True)
    with gzip.open(job.folder / "documents.jsonl.gz", "wt", encoding="utf-8", compresslevel=3) as out:
        for document in job.documents:
            out.write(json.dumps(asdict(document)) + "\n")
    values = {
        "policy": job.policy, "model": job.model.model_dump(), "cluster": job.cluster.model_dump(), "threads": job.threads,
        "settings": asdict(job.settings), "batches": job.batches,
    }
    (job.folder / "job.json").write_text(json.dumps(values))


def read_job(folder: Path) -> SftJob:
    """Raises UserError where the folder holds no complete job."""
    try:
        values = json.loads((folder / "job.json").read_text())
        with gzip.open(folder / "documents.jsonl.gz", "rt", encoding="utf-8") as lines:
            documents = [Document(**json.loads(line)) for line in lines]
    except (OSError, EOFError, ValueError) as error:
        raise UserError(f"{folder} holds no complete training job: {error}; remove it and start again") from error
    settings = SftSettings(**{**values["settings"], "betas": tuple(values["settings"]["betas"])})
    return SftJob(
        folder, values["policy"], ModelConfig(**values["model"]), ClusterConfig(**values["cluster"]), values["threads"], settings,
        documents, values["batches"],
    )
