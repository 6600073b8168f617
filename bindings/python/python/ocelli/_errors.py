"""The exceptions, one for each kind of error."""


class Error(Exception):
    """Any error of Ocelli: one line that says what failed, on which input, and what to do."""


class InvalidArgument(Error, ValueError):
    """An argument is invalid: a blank class, a threshold of 7, an array of another shape."""


class InvalidData(Error, ValueError):
    """A file is corrupt, unsupported, or not what its name says."""


class Mismatch(Error):
    """Two inputs do not belong together: a text cache of another model, an engine of another GPU."""


class Unavailable(Error):
    """A library, driver or feature is missing or too old; the message has the remedy."""


class Io(Error, OSError):
    """The operating system reported an error of a read or a write."""


class Execution(Error):
    """An engine failed while it ran."""


class Cancelled(Error):
    """The operation was cancelled."""


class Internal(Error):
    """A bug in Ocelli."""
