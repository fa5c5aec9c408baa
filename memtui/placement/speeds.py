"""What was measured of pools, under the names of the table that ``memtui place profile`` prints."""

from __future__ import annotations

from typing import Any

from memtui.placement.measured import Pool, Profile


def pool_plain(profile: Profile, pool: Pool) -> dict[str, Any]:
    """JSON-ready: the pool as the profile has it, its bandwidths (bytes a second) and fixed times of moves (ns).

    ``out`` is out of the pool into the fast one, ``in`` the other way; ``meanwhile``: while an op runs.
    """
    return pool.to_plain() | {
        "bandwidth_bytes_per_s": {
            "read": profile.about.get(f"{pool.name} read"),
            "written": profile.about.get(f"{pool.name} written"),
            "copy_out": pool.read_bytes_per_s,
            "copy_in": pool.write_bytes_per_s,
            "copy_out_meanwhile": pool.async_read_bytes_per_s,
            "copy_in_meanwhile": pool.async_write_bytes_per_s,
        },
        "fixed_ns": {
            "copy_out": pool.read_fixed_ns,
            "copy_in": pool.write_fixed_ns,
            "copy_out_meanwhile": pool.async_read_fixed_ns,
            "copy_in_meanwhile": pool.async_write_fixed_ns,
            "start_meanwhile": pool.async_start_ns,
        },
    }
