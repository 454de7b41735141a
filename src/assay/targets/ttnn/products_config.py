"""How accurately the card's cores compute products and sums: as accurately as they can."""

from __future__ import annotations

from assay.targets.ttnn.plan import Make, Named

ACCURATE = Make(
    "WormholeComputeKernelConfig",
    {
        "math_fidelity": Named("MathFidelity.HiFi4"),
        "math_approx_mode": False,
        "fp32_dest_acc_en": True,
        "packer_l1_acc": True,
    },
)
"""All bits of the operands, sums in f32."""
