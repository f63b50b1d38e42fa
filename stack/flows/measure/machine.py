"""The machine as the ledger knows it: what can change a measured value."""

from __future__ import annotations

import os

import msgspec

from stack.bench import environment
from stack.flows.builds.environment import Base
from stack.host import fingerprint
from stack.model.measure.trial import Machine, digest
from stack.store.stamps import now


def machine_of(base: Base) -> Machine:
    """The fingerprint of this machine with a base, in the environment of this process."""
    mine = fingerprint.read(base.record.interpreter.version, base.packages)
    outer = environment.machine_part(os.environ)
    facts = {**msgspec.to_builtins(mine), "environment": outer}
    return Machine(id=digest(mine.digest, outer), time=now(), facts=facts)
