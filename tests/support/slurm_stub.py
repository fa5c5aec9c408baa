"""As much of Slurm as submitit asks for: ``sbatch``, ``srun``, ``sacct`` and ``scancel``, as programs in a folder.

Tasks of an array run one after another, as on a cluster with one node. Nothing else is like Slurm.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

JOB = "12"
_SBATCH = f"""
import os, re, subprocess, sys
here, script = os.path.dirname(__file__), sys.argv[-1]
text = open(script).read()
open(here + "/submitted.sh", "w").write(text)
first, last = map(int, re.search(r"--array=(\\d+)-(\\d+)", text).groups())
if os.fork() == 0:
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    os.dup2(1, 2)
    for task in range(first, last + 1):
        slurm = dict(SLURM_JOB_ID=str({JOB} + task), SLURM_ARRAY_JOB_ID="{JOB}", SLURM_ARRAY_TASK_ID=str(task))
        slurm |= dict(SLURM_ARRAY_TASK_COUNT=str(last + 1), SLURM_NTASKS="1", SLURM_JOB_NUM_NODES="1",
                      SLURM_NODEID="0", SLURM_PROCID="0", SLURM_LOCALID="0", SLURM_JOB_NODELIST="here")
        code = subprocess.call(["/bin/bash", script], env=os.environ | slurm)
        open(here + f"/state-{{task}}", "w").write("FAILED" if code else "COMPLETED")
    os._exit(0)
print("Submitted batch job {JOB}")
"""
_SRUN = """
import os, sys
words = sys.argv[sys.argv.index(sys.executable):]
os.execv(words[0], words)
"""
_SACCT = f"""
import os
here = os.path.dirname(__file__)
print("JobID|State|NodeList")
for task in range(16):
    state = here + f"/state-{{task}}"
    print(f"{JOB}_{{task}}|" + (open(state).read() if os.path.exists(state) else "RUNNING") + "|here")
"""


def install(folder: Path) -> dict[str, str]:
    """Write the programs; the environment in which they are found. What was submitted is ``submitted.sh`` there."""
    folder.mkdir()
    for name, code in (("sbatch", _SBATCH), ("srun", _SRUN), ("sacct", _SACCT), ("scancel", "")):
        path = folder / name
        path.write_text(f"#!{sys.executable}\n{code}")
        path.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
