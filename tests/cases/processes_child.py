"""One of several processes that compute together: fits on a mesh of all their devices, printed as JSON, a line each,
beside those of process 0 by itself. Run by test_several_processes.py: COORDINATOR PROCESSES NUMBER NAME …
"""

import json
import sys

import jax
from mesh_child import FITS

import lvsearch as lv
from lvsearch.inference.several_processes import wait_for_all

if __name__ == "__main__":
    lv.distributed.initialize(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    mesh = jax.make_mesh((jax.device_count(),), ("anything",))
    for name in sys.argv[4:]:
        found = FITS[name](mesh)
        one = FITS[name](None) if jax.process_index() == 0 else None
        wait_for_all(mesh)
        print(json.dumps({"name": name, "one": one, "several": found, "devices": jax.device_count()}), flush=True)
