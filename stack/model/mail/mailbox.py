"""A mailbox cut into its mails."""

from __future__ import annotations

import re

_START = re.compile(
    rb"^From (?:[0-9a-f]{40} Mon Sep 17 00:00:00 2001"
    rb"|\S+ +(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) .*\d{4}.*)\r?$",
    re.MULTILINE,
)
# What `git format-patch` begins a mail with; with a header below it, it needs no empty line above.
_FORMATTED = re.compile(rb"From [0-9a-f]{40} Mon Sep 17 00:00:00 2001\r?\n(?:From|Date|Subject): ")


def split_mailbox(data: bytes) -> list[tuple[int, bytes]]:
    """The mails of a mailbox with the line (from 1) on which each begins.

    A file that does not begin with a `From ` line is one mail. A mail begins at the start of the
    file or after an empty line, so that a quoted `From ` line in a message does not cut it; what
    `git format-patch` wrote may also follow directly, as `cat *.patch` puts it.
    """
    if not data.startswith(b"From "):
        return [(1, data)]
    starts = [
        match.start()
        for match in _START.finditer(data)
        if match.start() == 0
        or data.endswith((b"\n\n", b"\n\r\n"), 0, match.start())
        or _FORMATTED.match(data, match.start())
    ]
    ends = [*starts[1:], len(data)]
    if not starts or starts[0] != 0:
        starts, ends = [0, *starts], [*starts, len(data)]
    return [
        (data.count(b"\n", 0, start) + 1, data[start:end])
        for start, end in zip(starts, ends, strict=True)
    ]
