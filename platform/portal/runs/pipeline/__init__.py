"""The main job as named steps, each safe to run again and to be cut off anywhere.

    measure   baseline -> tune -> measure -> review        then an auditor approves, outside
    bill      savings -> invoice -> prepare                then an auditor countersigns, outside
    seal      seal -> verify -> export

In: rows and the files of earlier steps. Out: rows and files of this step. Engines work outside
transactions, in child processes where they run foreign code; the effect is one service call. A
step that finds its row returns at once; a step that was killed continues from the files that are
complete and removes the rest.
"""
