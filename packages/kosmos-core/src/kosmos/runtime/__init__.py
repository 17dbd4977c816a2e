"""The machine: devices, number types, and the processes of a run."""
