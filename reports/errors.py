"""The one error of this room that a person is meant to read.

It is raised with a sentence that names the field or file, the value got, the value wanted and
what to do next. The command line prints it on one line; `verify` turns it into a failed check.
"""


class ReportError(Exception):
    """Something that was given cannot be used, signed or believed."""
