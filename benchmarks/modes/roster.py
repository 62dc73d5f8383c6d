"""All modes, in the order in which they are measured and shown."""

from benchmarks.modes import drain
from benchmarks.modes.mode import Mode

MODES: dict[str, Mode] = {mode.name: mode for mode in (drain.MODE,)}
