"""What a search may use and spend beside its seconds; one record for a model and for one operator.

In: nothing. Out: `Options`. Never here: a default that spends money or speaks to a server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

from kernelgen.agent.endpoint import Endpoint
from kernelgen.agent.ledger import TokenPrice

URL, MODEL, KEY = "IGNITION_LLM_URL", "IGNITION_LLM_MODEL", "IGNITION_LLM_KEY"


@dataclass(frozen=True)
class Options:
    """`trials` and `money` end a search when they are spent. `value` is the money that the whole
    run time costs its owner while the result is in use: with it and a price, a search ends when the
    next minute is worth less than it costs. `knowledge` is a file or folder of earlier trials.
    """

    trials: int | None = None
    money: Decimal | None = None
    value: Decimal | None = None
    knowledge: Path | None = None
    llm: Endpoint | None = None
    token_price: TokenPrice = field(default_factory=TokenPrice)
    customer: str = ""

    def __post_init__(self) -> None:
        if self.trials is not None and self.trials < 1:
            raise ValueError(f"trials: got {self.trials}, wanted 1 or more")
        for name in ("money", "value"):
            amount: Decimal | None = getattr(self, name)
            if amount is not None and (not amount.is_finite() or amount < 0):
                raise ValueError(f"{name}: got {amount}, wanted 0 or more")
        if self.knowledge is not None and not self.knowledge.exists():
            raise ValueError(f"knowledge: {self.knowledge} is not there")


def endpoint(
    url: str | None, model: str | None, key: str | None, environment: Mapping[str, str]
) -> Endpoint | None:
    """The operator's server from explicit options, else from the environment; None without a URL.

    Raises `ValueError` that never holds the key.
    """
    address = url or environment.get(URL, "")
    if not address:
        return None
    name = model or environment.get(MODEL, "")
    secret = environment.get(KEY, "") if key is None else key
    return Endpoint(address, name, secret)
