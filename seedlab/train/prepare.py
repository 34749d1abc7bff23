"""``python -m seedlab.train.prepare base|stage1 CONFIG`` or ``cell CONFIG FOLDER``: one link of the demo in a process."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from seedlab.cli.progress import ProgressLine
from seedlab.config.presets import from_json
from seedlab.errors import UserError


def main(argv: list[str]) -> int:
    link, text, *rest = argv
    cfg = from_json(text, "the configuration argument")
    torch.set_num_threads(cfg.threads)
    progress = ProgressLine()
    try:
        if link == "base":
            from seedlab.train.base import initial_policy_path

            initial_policy_path(cfg, progress)
        elif link == "stage1":
            from seedlab.train.stage1 import run_stage1

            run_stage1(cfg, progress)
        elif link == "cell":
            from seedlab.train.run import train
            from seedlab.train.stage2 import Interrupted

            try:
                train(cfg, Path(rest[0]), resume=True, progress=progress)
            except Interrupted as error:
                print(error)
                return 130
        else:
            raise UserError(f"unknown link {link!r}; use base, stage1 or cell")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
