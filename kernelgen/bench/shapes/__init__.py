"""The sizes that real models give to operators, one file per model.

In: nothing. Out: each module's `cases()`. A new model needs a new file and no other change.
Never here: sizes that no model has.
"""
