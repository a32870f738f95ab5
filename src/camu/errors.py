"""The errors a user may meet: one sentence each, with the exit code of the command line.

Everything that can go wrong by a user's hand or a machine's state is raised as one of these two;
anything else that reaches the command line is a defect of camu.
"""


class CamuError(Exception):
    """The work failed. The message is one clear sentence (exit code 1)."""

    exit_code = 1


class InputError(CamuError):
    """Wrong use or bad input: names the file, the key and what would be right (exit code 2)."""

    exit_code = 2
