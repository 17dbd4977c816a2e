"""Launch files for clusters, made from a run file and checked values; and what each node of a run is started by.

``settings`` holds the values, ``files`` fills ``templates``, ``node`` is torchrun with signals and an exit status.
"""
