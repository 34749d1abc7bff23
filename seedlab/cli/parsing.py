"""Pieces that several commands' parsers share."""

from __future__ import annotations

import argparse


def add_command(subparsers, name: str, text: str, example: str, run) -> argparse.ArgumentParser:
    """A subcommand with its help text and example; `run` takes the parsed arguments and returns the exit code."""
    parser = subparsers.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", epilog=f"example: {example}")
    parser.set_defaults(run=run)
    return parser


def count(text: str) -> int:
    """A whole number from 0 up, for `type=` of an argument."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 up")
    return int(text)


def positive(text: str) -> int:
    """A whole number of at least 1, for `type=` of an argument."""
    value = count(text)
    if value == 0:
        raise argparse.ArgumentTypeError("it has to be at least 1")
    return value
