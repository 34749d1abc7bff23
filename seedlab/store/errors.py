"""What can be wrong with a run folder."""

from seedlab.errors import UserError


class RunError(UserError):
    """A run folder, or a file in it, is missing, damaged or of an unknown version; the message names it."""
