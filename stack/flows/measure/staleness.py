"""Whether a verdict still speaks of what stands there: the patches, and the machine."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from stack.errors import StackError
from stack.flows.builds import environment
from stack.flows.measure.machine import machine_of
from stack.model.line.line import Member
from stack.model.mail.mail import parse_mail
from stack.model.measure.trial import Mode, VerdictRecord
from stack.model.project.settings import Profile
from stack.store.project import Line, Project


def digest_of(line: Line, names: Sequence[str]) -> str:
    """What changes whenever the pin or the diff of one of these patches does, in their order."""
    state = hashlib.sha256(line.series.pin.tree.encode())
    for name in names:
        diff = parse_mail(line.files[name], f"{name}.patch").diff
        state.update(b"\0" + hashlib.sha256(diff).digest())
    return state.hexdigest()[:16]


def sources(
    project: Project, profile: Profile, line: Line, member: Member, mode: Mode
) -> dict[str, str]:
    """What a verdict of a patch rests on: a digest of the patches of each line of the profile."""
    parked = (member.name,) if member.state == "parked" else ()
    to = None if mode == "leave-one-out" else member.name
    chosen = line.series.select(to=to, with_=parked)
    found = {line.id: digest_of(line, [one.name for one in chosen])}
    for other in (project.find(text) for text in profile.lines):
        if other.id != line.id:
            found[other.id] = digest_of(other, [one.name for one in other.series.select()])
    return found


def machine_now(project: Project, name: str, profile: Profile) -> str | None:
    """The id of this machine with the profile's base, or None where that is not built."""
    try:
        base = environment.find(project, environment.wanted(project, name, profile))
    except StackError:
        return None
    return None if base is None else machine_of(base).id


def why_stale(
    project: Project, profile: Profile, record: VerdictRecord, machine: str | None, *,
    strict: bool = False,
) -> str | None:
    """Why a verdict may not hold any more, or None where it does.

    One that an older release wrote does not say what it rests on; that counts where it is `strict`.
    """
    line = project.find(record.line)
    member = next((one for one in line.series.patch if one.name == record.patch), None)
    if member is None:
        return "the line has no such patch any more"
    if not record.sources and strict:
        return "it does not say which patches it rests on"
    if record.sources:
        now = sources(project, profile, line, member, record.mode)
        if changed := _changed(record.sources, now):
            return f"patches of {changed} changed since"
    if machine is not None and record.machine != machine:
        return "measured on another machine, or with other versions"
    return None


def _changed(then: Mapping[str, str], now: Mapping[str, str]) -> str:
    names = [name for name in {**then, **now} if then.get(name) != now.get(name)]
    return ", ".join(names)
