"""The two sides of a comparison: which layers, which environment, which files must be loaded."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping
from pathlib import Path

import msgspec

from stack.model.line.line import Claim, Member
from stack.model.line.outcome import Outcome
from stack.model.measure.trial import Mode, Side, digest
from stack.model.project.settings import Bench


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """One side: `layers` in import order, what they hold by sha256 ("" for removed), the knobs.

    Arms that differ by their `draw` alone have caches of their own, so that what chance does to a
    build counts as noise. A side that could not be `made` stays empty. `arguments` are put behind
    those of the bench's commands.
    """

    prefix: str
    trees: Mapping[str, str]
    layers: tuple[Path, ...]
    patched: Mapping[str, str]
    knobs: Mapping[str, str]
    draw: str = ""
    made: bool = True
    arguments: tuple[str, ...] = ()

    @property
    def identity(self) -> Mapping[str, str]:
        """Names what runs, whatever the environment: the trees, a draw, arguments of its own."""
        more = {"draw": self.draw, "arguments": shlex.join(self.arguments)}
        return {**self.trees, **{name: said for name, said in more.items() if said}}

    @property
    def layers_key(self) -> str:
        """Names what is imported, whatever the environment."""
        return digest(sorted(self.identity.items()))


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A patch put to the test: a side before it against a side with it, in one bench.

    `upstream` is the side without any patch, where the prefix before has some. `rounds` names the
    rounds that measure it together with others, `sources` digests of the patches behind it.
    """

    line: str
    member: Member
    outcome: Outcome
    mode: Mode
    name: str
    bench: Bench
    before: Arm
    after: Arm
    upstream: Arm | None = None
    rounds: str | None = None
    sources: Mapping[str, str] = {}

    def arm(self, side: Side) -> Arm:
        if side == "upstream":
            return self.upstream or self.before
        return self.before if side == "before" else self.after

    @property
    def claim(self) -> Claim | None:
        """What has to hold: the patch's claim, or "same" where it is switched off."""
        return "same" if self.mode == "default-off" else self.member.claim

    @property
    def promises_equal_output(self) -> bool:
        """Whether both sides must give the same tokens.

        A patch that makes a blocked engine run may correct its arithmetic where it ran, and an
        experiment may trade exactness; every other patch must leave the output alone, and so
        must every patch that is switched off.
        """
        if self.mode == "default-off":
            return True
        return self.member.claim != "unblocked" and self.member.kind != "experiment"


def drawn(asked: Comparison, number: int) -> Comparison:
    """The comparison as pair `number` (from 0) makes it: its builds are taken in turn.

    The first build is the one of gates and of a bench with one draw.
    """
    draw = number % asked.bench.draws
    if not draw:
        return asked
    before, after = (
        msgspec.structs.replace(arm, draw=f"{arm.draw}{draw}")
        for arm in (asked.before, asked.after)
    )
    return msgspec.structs.replace(asked, before=before, after=after)


Expected = dict[str, str | None]


def expected_files(asked: Comparison, side: Side, site_packages: Path) -> Expected:
    """What every file that either side patches must be on this side: a sha256, None for absent."""
    own = asked.arm(side).patched
    expected: Expected = {}
    for name in sorted({*asked.before.patched, *asked.after.patched}):
        if name in own:
            expected[name] = own[name] or None
        else:
            expected[name] = _sha256(site_packages / name)
    return expected


def _sha256(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return None


def knobs(
    common: Mapping[str, str], applied: list[Member], member: Member | None
) -> dict[str, str]:
    """The environment of both sides when `member` is put to the test after `applied`.

    `common` is the profile's and the bench's. Both sides get the patch's own `env`, so that only
    its code differs; to the side without the patch an unknown name means nothing. What stands
    before it is switched on too, as it is when the stack is used, but for diagnostics, which would
    measure themselves. Without a `member` the switches of the patch itself are left alone.
    """
    env = dict(common)
    for earlier in applied:
        if earlier.kind != "diagnostic":
            env |= earlier.env
    return env | dict(member.env if member else {})
