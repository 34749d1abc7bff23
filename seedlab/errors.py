"""Errors that a user can mend: shown without a traceback, with an exit code for scripts."""


class UserError(Exception):
    """Something the user gave is wrong; the message names the file, key or task and what to do."""

    exit_code = 2


class ConfigError(UserError):
    """A preset, method, key or value that does not exist or does not fit; the message names it."""
