"""The score of a stored accuracy run, worked out from its log and the library alone.

In: the folder of a run, the library it was asked from, and a floor. Out: a
:class:`ReadingAccuracy`, the same for everyone who has the two files. Never here: a score of a run
that was not VALID, or of answers to other questions.
"""

from __future__ import annotations

from pathlib import Path

from metering.datasets.reading import ReadingAccuracy, ReadingFloor, reading_accuracy
from metering.loadgen.files import sha256_file
from metering.loadgen.library import LibraryError, load_texts
from metering.loadgen.verdict import ACCURACY, accuracy_texts
from metering.loadgen.verify import EvidenceError, load_run, load_spec


def reading_of_run(run: Path, library: Path, floor: ReadingFloor) -> ReadingAccuracy:
    """Lines read in the accuracy run ``run`` against the texts in ``library``.

    Raises EvidenceError unless the run is a VALID accuracy run of text recognition over exactly
    that library, whose texts are known.
    """
    result, spec = load_run(run), load_spec(run)
    if (spec.task, spec.mode) != ("text_recognition", "accuracy"):
        raise EvidenceError(
            f"{run.name}: a {spec.mode} run of {spec.task}, wanted accuracy of text_recognition"
        )
    if not result.valid:
        raise EvidenceError(f"{run.name}: {result.state}, wanted VALID")
    digest = sha256_file(library)
    if digest != spec.samples_sha256:
        raise EvidenceError(
            f"{run.name}: was asked from {spec.samples_sha256}, {library.name} is {digest}"
        )
    try:
        truth = load_texts(library)
    except LibraryError as error:
        raise EvidenceError(f"{run.name}: no truth to score against ({error})") from error
    return reading_accuracy(truth, accuracy_texts((run / ACCURACY).read_bytes()), floor)
