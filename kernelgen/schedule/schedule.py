"""One schedule: an operator's name and the value of every choice, in a text that replays it
exactly.

In: names and values. Out: the same, printed or parsed. Never here: what a choice does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

Value = int | str

_TOKEN = re.compile(r"^([a-z][a-z0-9_]*)=(-?\d+|[a-z][a-z0-9_]*)$")


class ScheduleError(ValueError):
    """A schedule text or a choice that cannot be used, with what was got and what was wanted."""


@dataclass(frozen=True, order=True)
class Schedule:
    """`operator` names the operator it was made for; `choices` are sorted pairs of axis and
    value.
    """

    operator: str
    choices: tuple[tuple[str, Value], ...]

    @classmethod
    def of(cls, operator: str, choices: Mapping[str, Value]) -> Schedule:
        return cls(operator, tuple(sorted(choices.items())))

    @property
    def as_dict(self) -> dict[str, Value]:
        return dict(self.choices)

    def number(self, axis: str) -> int:
        value = self._value(axis)
        if not isinstance(value, int):
            raise ScheduleError(f"{self.operator}: axis {axis} holds {value!r}, wanted a number")
        return value

    def word(self, axis: str) -> str:
        value = self._value(axis)
        if not isinstance(value, str):
            raise ScheduleError(f"{self.operator}: axis {axis} holds {value!r}, wanted a word")
        return value

    def _value(self, axis: str) -> Value:
        for name, value in self.choices:
            if name == axis:
                return value
        known = ", ".join(name for name, _ in self.choices)
        raise ScheduleError(f"{self.operator}: no axis {axis!r}, this schedule has {known}")

    def with_choice(self, axis: str, value: Value) -> Schedule:
        return Schedule.of(self.operator, {**self.as_dict, axis: value})

    def text(self) -> str:
        """One line such as `gemm_bias_384x1152: mr=12 nr=2 vector=16`; `parse` reads it back."""
        return f"{self.operator}: " + " ".join(f"{axis}={value}" for axis, value in self.choices)

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """Read what `text` wrote. Raises `ScheduleError` naming the token that does not fit."""
        operator, colon, rest = text.strip().partition(":")
        if not colon or not operator:
            raise ScheduleError(f"schedule text {text!r}: wanted 'operator: axis=value ...'")
        choices: dict[str, Value] = {}
        for token in rest.split():
            match = _TOKEN.match(token)
            if match is None:
                raise ScheduleError(f"schedule token {token!r}: wanted axis=number or axis=word")
            axis, value = match.groups()
            if axis in choices:
                raise ScheduleError(f"schedule token {token!r}: axis {axis} is given twice")
            choices[axis] = int(value) if value.lstrip("-").isdigit() else value
        return cls.of(operator, choices)

    def to_dict(self) -> dict[str, object]:
        return {"operator": self.operator, "choices": self.as_dict}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Schedule:
        operator, choices = data.get("operator"), data.get("choices")
        if not isinstance(operator, str) or not isinstance(choices, Mapping):
            raise ScheduleError(f"schedule record {data!r}: wanted operator and choices")
        for axis, value in choices.items():
            if (
                not isinstance(axis, str)
                or isinstance(value, bool)
                or not isinstance(value, int | str)
            ):
                raise ScheduleError(
                    f"schedule choice {axis!r}={value!r}: wanted a number or a word"
                )
        return cls.of(operator, dict(choices))
