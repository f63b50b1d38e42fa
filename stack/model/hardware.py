"""What a profile asks of its machine, and how much memory a checkpoint takes there."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Positive = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]
GIB = float(2**30)


class Hardware(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"
):
    """The devices of a profile: how many, how much memory each has (GiB), which software they need.

    `usable` is the fraction of it that the engine takes (vLLM's `gpu-memory-utilization`).
    `libsycl` is the N of the `libsycl.so.N` that the profile's torch loads, for a machine on which
    its base is not built yet; `driver` the oldest driver that serves its torch.
    """

    device: Literal["cpu", "xpu", "cuda"] = "cpu"
    count: Count = 1
    memory: Positive | None = None
    usable: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.9
    libsycl: Count | None = None
    driver: str | None = None


class Checkpoint(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"
):
    """The size of a profile's model: parameters, and what its KV cache is made of.

    `quantized` parameters take `bits` each and one 16-bit scale for every `group`; `plain` ones
    take 16 bits. The KV cache of `tokens` tokens is counted in 16 bits too. `path` is where the
    profile's benches look for it (a template).
    """

    path: str | None = None
    quantized: Annotated[float, msgspec.Meta(ge=0)] = 0
    plain: Annotated[float, msgspec.Meta(ge=0)] = 0
    bits: Count = 4
    group: Count = 128
    layers: Count
    kv_heads: Count
    head_dim: Count
    tokens: Count

    @property
    def weights(self) -> float:
        """Bytes of all weights: quantized (bits / 8 + 2 / group) + 2 plain."""
        return self.quantized * (self.bits / 8 + 2 / self.group) + 2 * self.plain

    @property
    def formula(self) -> str:
        """The sum in words."""
        return (
            f"{self.quantized / 1e9:.1f}e9 x ({self.bits} bits + 16/{self.group}) + "
            f"{self.plain / 1e9:.2f}e9 x 16 bits"
        )


def kv_bytes(layers: int, kv_heads: int, head_dim: int, tokens: int) -> int:
    """Bytes of a 16-bit KV cache: K and V, 2 bytes each, for every layer, head and token."""
    return 2 * 2 * layers * kv_heads * head_dim * tokens
