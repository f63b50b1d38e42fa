"""A line: an ordered series of patches at one pin, and the choice of some of them."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, get_args

import msgspec

from stack.errors import UsageError

SCHEMA = 1
Name = Annotated[str, msgspec.Meta(pattern=r"\A[a-z0-9][a-z0-9._+-]{0,79}\Z")]
ObjectId = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{40}\Z")]
Sha256 = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
State = Literal["active", "parked"]
PatchKind = Literal["fix", "feature", "diagnostic", "experiment"]
Reason = Literal["negative", "neutral", "obsolete", "upstreamed", "superseded"]
REASONS: tuple[Reason, ...] = get_args(Reason)
Claim = Literal["same", "faster", "unblocked"]


class Sdist(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The release archive of a pin; `short` is the commit that its `_version.py` names."""

    version: str
    sha256: Sha256
    short: str | None = None


class Pin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An upstream revision that never moves: full commit, or archive digest; always the tree."""

    label: Name
    tree: ObjectId
    commit: ObjectId | None = None
    sdist: Sdist | None = None

    @property
    def revision(self) -> str:
        """The commit, or the short id that the archive carries."""
        if self.commit:
            return self.commit
        return (self.sdist.short if self.sdist else None) or self.tree


class Member(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A patch's place in a line and what changes with time: state, reason, environment, claim."""

    name: Name
    state: State = "active"
    kind: PatchKind = "feature"
    reason: Reason | None = None
    env: Mapping[str, str] = {}
    needs: tuple[str, ...] = ()
    bench: tuple[str, ...] = ()
    claim: Claim | None = None


class Left(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A patch that this line goes without: it stood in `source` and was not carried here."""

    name: Name
    reason: Reason
    source: str
    id: str | None = None


class Series(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `series.toml` says; `patch` is in order, and order is meaning.

    `context` is the number of context lines with which `export` writes hunks; `left` are the
    patches that a rebase left behind for good, by name and Patch-Id.
    """

    schema: int
    upstream: Name
    pin: Pin
    context: Annotated[int, msgspec.Meta(ge=1, le=20)] = 3
    patch: tuple[Member, ...] = ()
    left: tuple[Left, ...] = ()

    @property
    def id(self) -> str:
        """`UPSTREAM/LABEL`, the name by which people and flags call the line."""
        return f"{self.upstream}/{self.pin.label}"

    def member(self, name: str) -> Member:
        """The member of that name, or `UsageError` with the nearest names."""
        for member in self.patch:
            if member.name == name:
                return member
        raise UsageError(
            f"line {self.id} has no patch `{name}`",
            hint=near(name, [member.name for member in self.patch], "stack list"),
        )

    def select(
        self, *, to: str | None = None, with_: Sequence[str] = (), without: Sequence[str] = ()
    ) -> tuple[Member, ...]:
        """The patches to apply: the active ones, plus `with_`, minus `without`, up to `to`."""
        for name in (*with_, *without, *([to] if to else [])):
            self.member(name)
        both = set(with_) & set(without)
        if both:
            raise UsageError(
                f"`{min(both)}` stands in both --with and --without", hint="give one of them"
            )
        chosen = [
            member
            for member in self.patch
            if (member.state == "active" or member.name in with_) and member.name not in without
        ]
        if to is not None:
            names = [member.name for member in chosen]
            if to not in names:
                raise UsageError(
                    f"patch `{to}` is parked or left out, so nothing can be applied up to it",
                    hint=f"stack apply --with {to} --to {to}",
                )
            chosen = chosen[: names.index(to) + 1]
        return tuple(chosen)


def near(name: str, known: Sequence[str], place: str) -> str:
    """A hint that offers the names most like `name`, else the command or file that has them."""
    close = difflib.get_close_matches(name, dict.fromkeys(known), 3, 0.5)
    if close:
        return "did you mean " + " or ".join(f"`{other}`" for other in close) + "?"
    return f"{place} shows what there is"


def digest(series: Series, names: Sequence[str], files: Mapping[str, bytes]) -> str:
    """A sha256 over the pin's tree and the chosen patches' names and bytes, in order."""
    state = hashlib.sha256(series.pin.tree.encode())
    for name in names:
        state.update(b"\0" + name.encode() + b"\0" + hashlib.sha256(files[name]).digest())
    return state.hexdigest()
