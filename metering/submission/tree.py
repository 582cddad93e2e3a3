"""The one layout of an OPEN-division folder of v6.x, as paths.

In: the four names a folder is made of. Out: every path it must hold, and no other. Pure: nothing
here reads a disk.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from metering.loadgen.verdict import ACCURACY, DETAIL, SUMMARY

NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
"""Submitter, system and model: one plain folder name, also on systems that fold case."""

_RESULT = re.compile(r"open/([^/]+)/results/([^/]+)/([^/]+)/([^/]+)/.+")
MEASUREMENTS, USER_CONF, README = "measurements.json", "user.conf", "README.md"
ACCURACY_TXT = "accuracy.txt"


@dataclass(frozen=True)
class Names:
    """Submitter, system, own model name, and the scenarios that have a result."""

    submitter: str
    system: str
    model: str
    scenarios: tuple[str, ...]

    @property
    def mapping(self) -> str:
        return f"open/{self.submitter}/model_mapping.json"

    @property
    def source(self) -> str:
        return f"open/{self.submitter}/src/{self.model}/{README}"

    @property
    def description(self) -> str:
        return f"open/{self.submitter}/systems/{self.system}.json"

    def result(self, scenario: str) -> str:
        return f"open/{self.submitter}/results/{self.system}/{self.model}/{scenario}"

    def performance(self, scenario: str) -> str:
        return f"{self.result(scenario)}/performance/run_1"

    def accuracy(self, scenario: str) -> str:
        return f"{self.result(scenario)}/accuracy"

    def paths(self) -> tuple[str, ...]:
        """Every file of the folder, sorted."""
        found = [self.mapping, self.source, self.description]
        for scenario in self.scenarios:
            found += [
                f"{self.result(scenario)}/{name}" for name in (MEASUREMENTS, USER_CONF, README)
            ]
            found += [f"{self.performance(scenario)}/{name}" for name in (DETAIL, SUMMARY)]
            found += [
                f"{self.accuracy(scenario)}/{name}"
                for name in (ACCURACY_TXT, ACCURACY, DETAIL, SUMMARY)
            ]
        return tuple(sorted(found))


def names_of(paths: Iterable[str]) -> list[Names]:
    """The names found in the paths of a folder, one entry per submitter, system and model."""
    found: dict[tuple[str, str, str], set[str]] = {}
    for path in paths:
        match = _RESULT.fullmatch(path)
        if match is not None:
            submitter, system, model, scenario = match.groups()
            found.setdefault((submitter, system, model), set()).add(scenario)
    return [Names(*key, tuple(sorted(scenarios))) for key, scenarios in sorted(found.items())]
