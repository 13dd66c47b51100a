"""The error whose message is meant for the person at the keyboard."""


class SesameError(Exception):
    """One clear line that names the place and the cure. A stage prints it and exits with 1, without a traceback."""
