"""Pieces that several commands' parsers share."""

from __future__ import annotations

import argparse


def add_command(subparsers, name: str, text: str, example: str, run) -> argparse.ArgumentParser:
    """A subcommand with its help text and example; `run` takes the parsed arguments and returns the exit code."""
    parser = subparsers.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", epilog=f"example: {example}")
    parser.set_defaults(run=run)
    return parser


def positive(text: str) -> int:
    """A whole number of at least 1, for `type=` of an argument."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1; got {text}")
    return value
