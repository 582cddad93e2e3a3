"""A number that opens: what a page shows for every figure that somebody may ask about.

In: values read from stored records. Out: a frozen description that `{% figure %}` draws as the
value with a `<details>` holding formula, inputs, run ids, interval, method version and API call.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from portal.web.formats import ABSENT


@dataclass(frozen=True)
class Figure:
    """One figure on a page.

    `value` is already text; `formula` is in words; `inputs` are (name, text) pairs in the order the
    formula uses them; `runs` are run ids; `source` says which stored record holds the value.
    """

    label: str
    value: str
    unit: str = ""
    note: str = ""
    formula: str = ""
    inputs: tuple[tuple[str, str], ...] = ()
    interval: str = ""
    runs: tuple[str, ...] = ()
    method_version: str = ""
    api: str = ""
    state: str = ""

    @property
    def absent(self) -> bool:
        """Whether there is no value to show yet."""
        return self.value == ABSENT

    @property
    def opens(self) -> bool:
        """Whether there is anything to open."""
        return bool(self.formula or self.inputs or self.runs or self.interval)


@dataclass(frozen=True)
class Step:
    """One line of a 'what is going on' list: its state, its words, where it leads."""

    title: str
    state: str
    detail: str = ""
    url: str = ""


@dataclass(frozen=True)
class Crumb:
    """One link of the path above a page's title."""

    title: str
    url: str


def crumbs(*pairs: tuple[str, str]) -> Sequence[Crumb]:
    """Crumbs from (title, url) pairs."""
    return tuple(Crumb(title, url) for title, url in pairs)
