"""One of several processes that compute together: fits and searches on a mesh of all devices, printed as JSON, a line
each. Run by test_distributed.py: `processes_child.py COORDINATOR PROCESSES NUMBER [NAME …]`.
"""

import json
import sys

import jax
from mesh_child import FITS

import lvsearch as lv

if __name__ == "__main__":
    lv.distributed.initialize(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), timeout=20)
    mesh = jax.make_mesh((jax.device_count(),), ("anything",))
    for name in sys.argv[4:]:
        print(json.dumps({"name": name, "found": FITS[name](mesh)}), flush=True)
