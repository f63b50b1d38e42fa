"""What every measurement of a profile stands on: its build, its lock, its machine, its session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from stack.bench import environment
from stack.flows.builds import environment as bases
from stack.flows.builds import prepare
from stack.flows.builds.build import Built, build
from stack.flows.builds.layers import PROBE
from stack.flows.events import Emit, Said
from stack.flows.measure.machine import machine_of
from stack.flows.measure.signatures import catalogue
from stack.flows.measure.trials import Ground, Session
from stack.host import survivors
from stack.model.measure.trial import Machine
from stack.model.project.settings import Profile
from stack.store import lock
from stack.store.ledger import Ledger
from stack.store.project import Project


class Measuring(msgspec.Struct, frozen=True, kw_only=True):
    """A profile that is built, on a machine that nobody else measures on."""

    built: Built
    machine: Machine
    session: Session


@contextmanager
def measuring(
    project: Project, name: str, profile: Profile, emit: Emit, *, fresh: bool = False,
    what: str = "verify",
) -> Iterator[Measuring]:
    """Build what is missing, take the lock, end what a killed run left, and open a session.

    `fresh` measures again what the ledger holds. Raises `Locked` while another run measures here.
    """
    built = build(project, name, emit)
    ledger = Ledger(project.paths.ledger)
    project.paths.ensure_state()
    with lock.hold(project.paths.state / "measuring.lock", f"stack {what} of {name}"):
        _end_leftovers(project, emit)
        machine = _machine(built, ledger, emit)
        _tell_left_out(name, profile, emit)
        ground = _ground(project, name, profile, built, machine)
        session = Session(ground, project.paths, ledger, catalogue(project), emit, fresh=fresh)
        yield Measuring(built=built, machine=machine, session=session)


def _end_leftovers(project: Project, emit: Emit) -> None:
    """End what a killed verify left running; nobody else measures here, since we hold the lock."""
    mark = f"{environment.PROJECT_MARK}={project.paths.root}\0".encode()
    ended = survivors.end(mark)
    if ended:
        emit(Said(f"ended {ended} processes that a killed verify had left running", warning=True))


def _tell_left_out(name: str, profile: Profile, emit: Emit) -> None:
    """Say which switches of the caller's environment no trial will see."""
    names = environment.left_out(os.environ, profile.env)
    if names:
        shown = ", ".join(names[:8]) + (" ..." if len(names) > 8 else "")
        emit(Said(
            f"trials do not see {shown} of your environment; what they need stands in "
            f"[profile.{name}.env]", warning=True,
        ))


def _machine(built: Built, ledger: Ledger, emit: Emit) -> Machine:
    found = machine_of(built.base)
    known = {record.id for record in ledger.machines(lambda text: emit(Said(text, warning=True)))}
    if found.id not in known:
        ledger.append(found)
    return found


def _ground(
    project: Project, name: str, profile: Profile, built: Built, machine: Machine
) -> Ground:
    tasks = prepare.tasks(project, built.base, name, profile)
    return Ground(
        profile=name, base_key=built.base.key, python=built.base.python,
        site_packages=built.base.site_packages, probe=PROBE, machine=machine.id,
        values={
            **bases.values(project, built.base, name), "drivers": str(PROBE.parent),
        },
        inputs=tuple(task.key for task in tasks),
        outer={**os.environ, environment.PROJECT_MARK: str(project.paths.root)},
    )
