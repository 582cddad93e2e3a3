"""The journal as Beancount text: an arithmetic check that anyone can run.

In: issued documents.
Out: plain text with zero tolerance: `inferred_tolerance_default "*:0"` and `~ 0.00` on every
balance, because Beancount otherwise lets half a cent pass.
Never here: a balance that was not summed from the entries above it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal

from metering.decimals import exact, parse_decimal, to_text
from metering.export.finding import Finding
from metering.export.manifest import Manifest, manifest_of
from metering.ledger import Invoice, JournalEntry, balances, journal
from metering.money import minor_unit
from metering.refusal import Refusal

__all__ = ["beancount_export", "beancount_text"]


def beancount_export(documents: Sequence[Invoice]) -> tuple[str, Manifest]:
    """The text and its manifest; rows are postings, `sums` the debits per currency."""
    text = beancount_text(documents)
    debits: dict[str, Decimal] = {}
    rows = 0
    for document in documents:
        for entry in journal(document):
            rows += 1
            if entry.debit is not None:
                with exact():
                    before = debits.get(entry.currency, Decimal(0))
                    debits[entry.currency] = before + entry.debit
    return text, manifest_of("beancount", text.encode(), rows, documents, debits)


def beancount_text(documents: Sequence[Invoice]) -> str:
    """Accounts, one transaction per document, and the closing balance of every account."""
    currencies = sorted({document.currency for document in documents})
    lines = ['option "title" "Ignition journal"']
    lines += [f'option "operating_currency" "{currency}"' for currency in currencies]
    lines += ['option "inferred_tolerance_default" "*:0"', ""]
    entries: list[JournalEntry] = []
    body: list[str] = []
    for document in documents:
        booked = journal(document)
        if not booked:
            body += [f"; {document.number}: zero, nothing to book ({_plain(document.status)})", ""]
            continue
        entries += booked
        payee, text = _plain(document.customer.name), _plain(f"{document.kind} {document.number}")
        body.append(f'{booked[0].booked_on} * "{payee}" "{text}"')
        body += [_posting(entry.account, entry.amount, entry.currency) for entry in booked]
        body.append("")
    if entries:
        first = min(entry.booked_on for entry in entries)
        after = max(entry.booked_on for entry in entries) + timedelta(days=1)
        totals = balances(entries)
        for account in sorted({account for account, _ in totals}):
            used = ",".join(sorted({cur for name, cur in totals if name == account}))
            lines.append(f"{first} open {account} {used}")
        lines.append("")
        for (account, currency), amount in totals.items():
            zero = to_text(Decimal(0).quantize(Decimal(1).scaleb(-minor_unit(currency))))
            body.append(f"{after} balance {account}  {to_text(amount)} ~ {zero} {currency}")
        body.append("")
    return "\n".join([*lines, *body])


def transaction_sums(text: str) -> list[tuple[str, Decimal, str]]:
    """(first line, sum, currency) of every transaction in text written by `beancount_text`.

    Refuses a posting that is not account, amount and currency, or that mixes currencies.
    """
    sums: list[tuple[str, Decimal, str]] = []
    with exact():
        for number, line in enumerate(text.splitlines(), start=1):
            if line[:4].isdigit() and " * " in line:
                sums.append((line, Decimal(0), ""))
            elif line.startswith("  ") and sums:
                head, total, before = sums[-1]
                parts = line.split()
                if len(parts) != 3 or before not in ("", parts[2]):
                    raise Refusal(f"line {number}", line, "account, amount, one currency")
                amount = parse_decimal(parts[1], f"line {number}")
                sums[-1] = (head, total + amount, parts[2])
    return sums


def balance_findings(text: str) -> list[Finding]:
    """Every balance has zero tolerance and is the sum of the postings above it.

    For text written by `beancount_text`; refuses a line whose amount is no number.
    """
    findings: list[Finding] = []
    sums: dict[tuple[str, str], Decimal] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        parts = line.split()
        if line.startswith("  ") and len(parts) == 3:
            key = (parts[0], parts[2])
            with exact():
                amount = parse_decimal(parts[1], f"line {number}")
                sums[key] = sums.get(key, Decimal(0)) + amount
        elif parts[1:2] == ["balance"]:
            if len(parts) != 7 or parts[4] != "~" or parse_decimal(parts[5], f"line {number}"):
                findings.append(
                    Finding(f"line {number}", "a balance without ~ 0.00 lets cents pass")
                )
                continue
            amount, total = (
                parse_decimal(parts[3], f"line {number}"),
                sums.get((parts[2], parts[6])),
            )
            if amount != total:
                shown = "nothing" if total is None else to_text(total)
                findings.append(Finding(f"line {number}", f"{parts[3]} should be {shown}"))
    return findings


def _posting(account: str, amount: Decimal, currency: str) -> str:
    return f"  {account:<32}{to_text(amount):>16} {currency}"


def _plain(text: str) -> str:
    """Text inside Beancount quotes: no quote, no backslash, one line."""
    return " ".join(text.replace("\\", "/").replace('"', "'").split())
