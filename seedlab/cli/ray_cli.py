"""``seedlab ray``: a Ray cluster of one's own, for ``--backend ray``."""

from __future__ import annotations

import argparse
from pathlib import Path

from seedlab.cli.parsing import positive
from seedlab.store.files import shown_path


def add_commands(subparsers) -> None:
    ray = subparsers.add_parser(
        "ray", help="start a Ray cluster, or join one, as a job",
        description="Start the head of a Ray cluster, or let this machine join one, with token authentication. It is a job like any other: "
        "`seedlab cancel DIR` ends its processes and no others (`ray stop` would end everybody's). Options after -- go to `ray start`.",
        epilog="example: seedlab ray start --dir runs/ray -- --num-gpus=8",
    )  # fmt: skip
    ray.add_argument("action", choices=("start", "join"))
    ray.add_argument("--dir", metavar="DIR", default="runs/ray", help="folder of the job; default: runs/ray")
    ray.add_argument("--port", type=positive, default=6379, help="of the head, which listens on all interfaces; default: 6379")
    ray.add_argument("--dashboard-port", type=positive, default=8265, help="where jobs are submitted, on this machine only; default: 8265")
    ray.add_argument("--address", metavar="HOST:PORT", help="of the head, for join")
    ray.add_argument("--token-file", metavar="FILE", type=Path, help="mode 0600; default: RAY_AUTH_TOKEN_PATH, else one is made below the cache")
    ray.add_argument("extra", metavar="-- OPTION", nargs="*", help="options of `ray start`")
    ray.set_defaults(run=run_ray)


def run_ray(args: argparse.Namespace) -> int:
    from seedlab.jobs.ray_cluster import default_token_file, join, start_head
    from seedlab.jobs.record import JobError

    token = args.token_file or default_token_file()
    extra = tuple(args.extra)
    if args.action == "join":
        if not args.address:
            raise JobError("join needs --address HOST:PORT of the head, and its token file")
        job = join(args.dir, args.address, token_file=token, extra=extra)
    else:
        job = start_head(args.dir, port=args.port, dashboard_port=args.dashboard_port, token_file=token, extra=extra)
        print(f"http://127.0.0.1:{args.dashboard_port} takes jobs: seedlab submit PRESET --backend ray --ray address=http://127.0.0.1:{args.dashboard_port}")
        print(f"clients and other machines need: export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH={token}")
    print(f"{shown_path(job.path)}: process {job.record.pid}; `seedlab cancel {args.dir}` ends it")
    return 0
