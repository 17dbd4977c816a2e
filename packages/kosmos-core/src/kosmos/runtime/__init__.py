"""The machine: devices, number types, and the processes of a run."""

import logging

# On a Mac torch notes, as its launcher or its checkpoints are imported, that it redirects no output: nobody asks it to.
logging.getLogger("torch.distributed.elastic.multiprocessing.redirects").setLevel(logging.ERROR)
