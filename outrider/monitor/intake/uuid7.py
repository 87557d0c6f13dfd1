"""Identifiers of records that come without one."""

import os
import time


def uuid7s(count: int, *, now_ms: int | None = None) -> list[str]:
    """New UUIDs of version 7 (RFC 9562), sorted by the millisecond."""
    stamp = (time.time_ns() // 1_000_000 if now_ms is None else now_ms) & (1 << 48) - 1
    head = f"{stamp >> 16:08x}-{stamp & 0xFFFF:04x}-7"
    random = os.urandom(10 * count)
    made = []
    for start in range(0, 10 * count, 10):
        digits = random[start : start + 10].hex()
        variant = "89ab"[int(digits[3], 16) & 3]
        made.append(f"{head}{digits[:3]}-{variant}{digits[4:7]}-{digits[7:19]}")
    return made
