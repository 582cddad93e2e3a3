"""One module per kind of hardware: what this machine can compile for it, run, verify and
measure.
"""
