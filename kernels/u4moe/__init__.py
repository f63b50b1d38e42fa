"""Raw-u4 routed experts for mixture-of-experts decoding, on Triton devices and CPUs.

The names here are the ones that an inference engine's gate asks for. Importing needs torch only;
Triton and the compiled CPU extension are looked for when a device is asked about or used.
"""

from __future__ import annotations

from u4moe.op import (
    U4_ACTIVATION_DTYPES,
    U4_ROUTE_WEIGHT_DTYPES,
    moe_forward_tiny_nmajor_u4,
    u4_unavailable,
)

__all__ = [
    "U4_ACTIVATION_DTYPES",
    "U4_ROUTE_WEIGHT_DTYPES",
    "moe_forward_tiny_nmajor_u4",
    "u4_unavailable",
]
