"""What a customer states when asking for a measurement: the configuration that runs today.

In: the plan and what was typed. Out: `AsFoundForm.stated`, a system under test or None for "not
stated", or the form again with each message at its field. Nothing is filled in beforehand: a
default nobody read would become a statement.
"""

from typing import TYPE_CHECKING, Any

from django import forms

from metering.plan import MeasurementPlan
from metering.refusal import Refusal

if TYPE_CHECKING:  # Pages load the stacks only when somebody fills the form in.
    from metering.loadgen.spec import SutSpec

NOT_STATED, STATED = "not_stated", "stated"
ARRANGEMENTS = (
    ("", "Choose one"),
    ("single", "one sample at a time"),
    ("padded", "batches in order of arrival, padded to their longest sample"),
    ("grouped", "batches of like lengths"),
)
LEVELS = (
    ("", "Choose one"),
    ("all", "all (ONNX Runtime's own default)"),
    ("extended", "extended (PyTorch: compiled)"),
    ("basic", "basic (PyTorch: eager)"),
    ("none", "none"),
    ("default", "the stack's own default"),
)
NAMED = ("stack", "threads", "instances", "arrangement", "batch", "graph_optimization")


class AsFoundForm(forms.Form):
    """Stack and every knob that changes what it does, or the word that it is not stated."""

    answer = forms.ChoiceField(
        label="What do you run today?",
        choices=(
            ("", "Choose one"),
            (STATED, "the configuration below"),
            (NOT_STATED, "not stated"),
        ),
        help_text="It is measured beside the stock stacks. What you state here stays with the "
        "baseline; savings are counted from the best stock stack either way.",
    )
    stack = forms.ChoiceField(required=False)
    threads = forms.IntegerField(
        label="Threads of one instance", required=False, min_value=1, max_value=1024
    )
    instances = forms.IntegerField(
        label="Instances side by side", required=False, min_value=1, max_value=1024
    )
    arrangement = forms.ChoiceField(
        label="How samples are handed over", choices=ARRANGEMENTS, required=False
    )
    batch = forms.IntegerField(
        label="Samples in a batch", required=False, min_value=1, max_value=1_000_000
    )
    graph_optimization = forms.ChoiceField(
        label="Graph optimisation", choices=LEVELS, required=False
    )

    def __init__(self, *args: Any, plan: MeasurementPlan, **kwargs: Any) -> None:
        from metering.baseline.as_found import stated_stacks

        super().__init__(*args, **kwargs)
        self._plan = plan
        self.offered = stated_stacks(plan)
        self.stated: SutSpec | None = None
        stack: Any = self.fields["stack"]
        stack.choices = [("", "Choose one"), *((name, name) for name in self.offered)]
        cores = len(plan.cores)
        self.fields[
            "threads"
        ].help_text = f"Over all instances at most {cores}, the cores of the plan."

    def clean(self) -> dict[str, Any]:
        """Hold what is stated to the plan; each message goes to its field."""
        given: dict[str, Any] = super().clean() or self.cleaned_data
        if given.get("answer") == NOT_STATED:
            for name in NAMED:
                if given.get(name) not in (None, ""):
                    self.add_error(name, "Leave this empty, or choose “the configuration below”.")
            return given
        if given.get("answer") != STATED:
            return given
        for name in NAMED:
            if name in given and given[name] in (None, ""):
                self.add_error(name, "Wanted, so that the same can be measured.")
        if self.errors:
            return given
        from metering.baseline.as_found import as_found

        try:
            self.stated = as_found(
                self._plan, offered=self.offered, **{name: given[name] for name in NAMED}
            )
        except Refusal as refusal:
            next_step = f"; {refusal.next_step}" if refusal.next_step else ""
            self.add_error(refusal.field, f"Got {refusal.got}; wanted {refusal.wanted}{next_step}.")
        return given


class MomentForm(forms.Form):
    """The day whose first moment is asked about, in the contract's zone."""

    at = forms.DateField(
        label="In force on", widget=forms.DateInput(attrs={"type": "date"}), required=True
    )
