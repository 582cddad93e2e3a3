"""The report on paper: same facts same bytes, no injection, every word printed (P11, P14, T15)."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from pyhanko.pdf_utils.incremental_writer import IncrementalPdfFileWriter
from pyhanko.pdf_utils.reader import PdfFileReader
from pyhanko.sign import fields

from reports import pdfsign
from reports.errors import ReportError
from reports.facts import ReportFacts
from reports.pdf import FIELD_BOXES, render
from reports.view import money, month, number, percent, plot, view
from tests.reports.conftest import EXAMPLE
from tests.reports.parties import Sides


def words(pdf: bytes, tmp_path: Path) -> str:
    (tmp_path / "words.pdf").write_bytes(pdf)
    command = ["pdftotext", "-layout", str(tmp_path / "words.pdf"), "-"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def unsigned(facts: ReportFacts) -> bytes:
    return render(facts)


@pytest.fixture(scope="module")
def certified(unsigned: bytes, sides: Sides) -> bytes:
    return pdfsign.certify(unsigned, sides.platform)


@pytest.fixture(scope="module")
def signed(certified: bytes, sides: Sides) -> bytes:
    return pdfsign.countersign(certified, sides.auditor)


def test_same_facts_same_bytes_in_another_process(unsigned: bytes, facts: ReportFacts) -> None:
    assert render(facts) == unsigned
    program = (
        "import sys; from pathlib import Path; from reports.facts import ReportFacts;"
        "from reports.pdf import render;"
        f"sys.stdout.buffer.write(render(ReportFacts.from_json(Path({str(EXAMPLE)!r}).read_bytes())))"
    )
    again = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        check=True,
        cwd=EXAMPLE.parents[2],
        env={"PATH": "/usr/bin:/bin", "TZ": "Asia/Tokyo", "PYTHONHASHSEED": "7"},
    )
    assert again.stdout == unsigned


def test_other_facts_other_bytes(unsigned: bytes, facts_json: dict[str, Any]) -> None:
    facts_json["document"]["number"] = "R-2026-0008"
    assert render(ReportFacts.from_json(facts_json)) != unsigned


def test_a_sound_a4_pdf_of_two_to_four_pages(unsigned: bytes, tmp_path: Path) -> None:
    (tmp_path / "report.pdf").write_bytes(unsigned)
    info = subprocess.run(
        ["pdfinfo", str(tmp_path / "report.pdf")], capture_output=True, text=True, check=True
    ).stdout
    pages = int(next(line.split()[1] for line in info.splitlines() if line.startswith("Pages")))
    assert 2 <= pages <= 4
    assert "A4" in info
    checked = subprocess.run(
        ["qpdf", "--check", str(tmp_path / "report.pdf")], capture_output=True, check=False
    )
    assert checked.returncode == 0, checked.stdout
    assert b"pdfaid:part>3<" in unsigned.replace(b" ", b"")


def test_every_font_is_embedded(signed: bytes, tmp_path: Path) -> None:
    """PDF/A, and the marks of the signatures with it."""
    (tmp_path / "report.pdf").write_bytes(signed)
    listed = subprocess.run(
        ["pdffonts", str(tmp_path / "report.pdf")], capture_output=True, text=True, check=True
    ).stdout.splitlines()[2:]
    assert len(listed) >= 4
    assert all(line.split()[-5] == "yes" for line in listed)


def test_everything_is_printed(unsigned: bytes, facts: ReportFacts, tmp_path: Path) -> None:
    text = " ".join(words(unsigned, tmp_path).split())
    for limit in facts.limits:
        assert limit in text
    for digest in (facts.evidence_digest, facts.measurement_statement_sha256):
        assert digest in text
    for item in facts.exports:
        assert item.sha256 in text
    for line in facts.fee.lines:
        assert line.label in text
    for part in ("+42.07 %", "+41.88 % to +44.31 %", "1.29 EUR", "918,273,645", "R-2026-0007",
                 "M\u00fcller & S\u00f6hne Logistik GmbH", "Northlight Assurance", "1,812.4",
                 "Short runs.", "chosen", "1 November 2026 to 1 December 2026"):  # fmt: skip
        assert part in text


def test_a_measurement_that_is_not_kept_says_so(facts_json: dict[str, Any], tmp_path: Path) -> None:
    uplift = facts_json["measurement"]["uplift"]
    uplift.update(kept=False, reason="lower bound is below the smallest effect of the plan")
    text = " ".join(words(render(ReportFacts.from_json(facts_json)), tmp_path).split())
    assert "no gain is claimed: lower bound is below the smallest effect of the plan" in text
    assert "Not kept" in text


EVIL = [
    "#panic(1)",
    '#read("/etc/passwd")',
    '"; #read("report.typ")',
    "*bold* _it_ $x^2$ <label> @ref `raw`",
    "\\u{41} \\ #include",
    '#import "@preview/x:0.1.0"',
    "</script><b>",
    "= Heading",
    "/* // comment",
]


@pytest.mark.parametrize("evil", EVIL)
def test_text_is_printed_and_never_run(
    facts_json: dict[str, Any], evil: str, tmp_path: Path
) -> None:
    """S5: what a customer types is words, in every place it is printed."""
    facts_json["measurement"]["organisation"]["name"] = evil
    facts_json["measurement"]["system"]["name"] = evil
    facts_json["limits"][0] = evil
    facts_json["fee"]["lines"][0]["label"] = evil
    text = " ".join(words(render(ReportFacts.from_json(facts_json)), tmp_path).split())
    assert text.count(" ".join(evil.split())) >= 3
    assert "root:" not in text


@pytest.mark.parametrize(
    ("path", "value", "word"),
    [
        ("document.number", "../../etc", "document.number"),
        ("document.number", 7, "document.number"),
        ("document.issued_at", "2026-12-02T09:30:00+01:00", "document.issued_at"),
        ("document.issued_at", "2026-12-02", "document.issued_at"),
        ("period.zone", "Mars/Olympus", "period.zone"),
        ("period.end", "2026-10-31T23:00:00Z", "before its end"),
        ("measurement.uplift.point", 0.4312, "measurement.uplift.point"),
        ("measurement.uplift.point", "1e9", "measurement.uplift.point"),
        ("measurement.uplift.point", "NaN", "measurement.uplift.point"),
        ("measurement.uplift.point", "\u0663", "measurement.uplift.point"),
        ("measurement.baseline.sha256", "ABC", "measurement.baseline.sha256"),
        ("measurement.organisation.name", "", "measurement.organisation.name"),
        ("measurement.organisation.name", "a\u202eb", "202E"),
        ("measurement.organisation.name", "a\x1b[31m", "001B"),
        ("measurement.organisation.name", "x" * 401, "measurement.organisation.name"),
        ("fee.net", "1.09", "fee lines sum"),
        ("fee.total", "1.30", "is not the total"),
        ("fee.currency", "USD", "but the fee is in USD"),
        ("unknown", "x", "unknown"),
    ],
)
def test_facts_that_cannot_be_are_refused_by_field(
    facts_json: dict[str, Any], path: str, value: Any, word: str
) -> None:
    *parents, last = path.split(".")
    target = facts_json
    for parent in parents:
        target = target[parent]
    target[last] = value
    with pytest.raises(ReportError, match=word):
        ReportFacts.from_json(facts_json)


def test_facts_read_back_the_same(facts: ReportFacts) -> None:
    assert ReportFacts.from_json(facts.to_bytes()) == facts
    assert ReportFacts.from_json(facts.to_json()).to_bytes() == facts.to_bytes()
    with pytest.raises(ReportError, match="twice"):
        ReportFacts.from_json(facts.to_bytes().replace(b'{"document"', b'{"fee":1,"document"'))


def test_rounding_for_the_eye_never_flatters() -> None:
    assert percent("0.420799") == "+42.08 %"
    assert percent("0.420799", floor=True) == "+42.07 %"
    assert percent("-0.00001", floor=True) == "\u22120.01 %"
    assert percent("0") == "0.00 %"
    assert number("1234567.5") == "1,234,567.5"
    assert money("4.2", "EUR") == "4.20 EUR"
    assert money("0.000000412", "EUR") == "0.00 EUR"
    assert money("0.0480", "USD") == "0.048 USD"
    assert money("1200", "JPY") == "1,200 JPY"
    assert month("2026-11") == "November 2026"
    assert month("first half of 2026") == "first half of 2026"
    assert money("-0.12", "EUR") == "\u22120.12 EUR"


@pytest.mark.parametrize(
    "ratios", [["1.43", "1.44"], ["0.9", "1.1"], ["1"], [], ["3.5", "9.75", "12"], ["1.00001"]]
)
def test_plots_stay_inside_their_frame_and_show_zero(ratios: list[str]) -> None:
    drawn = plot(ratios, "-0.01", "0.4")
    places = [*(x for x, _ in drawn["dots"]), *drawn["band"], drawn["zero"]]
    places += [place for place, _ in drawn["ticks"]]
    assert all(0 <= place <= 1 for place in places)
    assert "0 %" in [label for _, label in drawn["ticks"]]
    assert 2 <= len(drawn["ticks"]) <= 12


def test_a_long_sweep_is_shortened_and_says_so(facts_json: dict[str, Any]) -> None:
    row = facts_json["measurement"]["baseline"]["sweep"][0]
    facts_json["measurement"]["baseline"]["sweep"] += [copy.deepcopy(row) for _ in range(60)]
    shown = view(ReportFacts.from_json(facts_json))["baseline"]
    assert len(shown["sweep"]) == 10
    assert shown["unlisted"] == 56
    assert shown["sweep"][0]["chosen"]
    pdf = render(ReportFacts.from_json(facts_json))
    assert int(PdfFileReader(BytesIO(pdf)).root["/Pages"]["/Count"]) <= 4


def test_both_fields_are_reserved_on_the_last_page(unsigned: bytes) -> None:
    reader = PdfFileReader(BytesIO(unsigned))
    found = {name: value for name, value, _ in fields.enumerate_sig_fields(reader)}
    assert found == {"Platform": None, "Auditor": None}
    assert set(FIELD_BOXES) == set(found)


def test_both_signatures_hold(signed: bytes, sides: Sides) -> None:
    platform, auditor = pdfsign.check(signed, sides.trust.roots)
    assert (platform.field, auditor.field) == ("Platform", "Auditor")
    assert auditor.signer == "Northlight Assurance documents"


def test_signing_keeps_the_rendered_bytes(unsigned: bytes, signed: bytes) -> None:
    assert signed.startswith(unsigned)


def test_the_auditors_mark_is_on_the_page(signed: bytes, tmp_path: Path) -> None:
    text = words(signed, tmp_path)
    assert "audited and countersigned" in text


def pdfsig(data: bytes, tmp_path: Path) -> str:
    (tmp_path / "signed.pdf").write_bytes(data)
    command = ["pdfsig", "-nocert", str(tmp_path / "signed.pdf")]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def test_pdfsig_agrees(signed: bytes, tmp_path: Path) -> None:
    """Failure 15: a signature that other tools reject is worth nothing."""
    said = pdfsig(signed, tmp_path)
    assert said.count("Signature is Valid.") == 2
    assert said.rstrip().split("Signature #2:")[1].count("Total document signed") == 1


def test_openssl_agrees(signed: bytes, sides: Sides, tmp_path: Path) -> None:
    """`openssl cms` over the signed byte range, with the platform's root and no other."""
    reader = PdfFileReader(BytesIO(signed))
    for item, directory in zip(
        reader.embedded_regular_signatures, (sides.platform_dir, sides.auditor_dir), strict=True
    ):
        start, length, after, rest = (int(part) for part in item.byte_range)
        data = signed[start : start + length] + signed[after : after + rest]
        (tmp_path / "data").write_bytes(data)
        (tmp_path / "cms").write_bytes(item.pkcs7_content)
        command = ["openssl", "cms", "-verify", "-binary", "-inform", "DER", "-purpose", "any"]
        command += ["-in", str(tmp_path / "cms"), "-content", str(tmp_path / "data")]
        command += ["-CAfile", str(directory / "root.pem"), "-out", "/dev/null"]
        good = subprocess.run(command, capture_output=True, text=True, check=False)
        assert good.returncode == 0, good.stderr
        (tmp_path / "data").write_bytes(data.replace(b"%PDF-1", b"%PDF-2", 1))
        assert subprocess.run(command, capture_output=True, check=False).returncode != 0


def flipped(data: bytes) -> bytes:
    changed = bytearray(data)
    changed[5000] ^= 1
    return bytes(changed)


def page_replaced(data: bytes) -> bytes:
    """Shadow attack: an incremental update gives page one other contents."""
    writer: Any = IncrementalPdfFileWriter(BytesIO(data))
    page = writer.root["/Pages"]["/Kids"][0]
    stream = page["/Contents"]
    stream._data = b"q 1 0 0 rg 0 0 600 900 re f Q"
    stream._encoded_data = None
    writer.mark_update(page.raw_get("/Contents").reference)
    target = BytesIO()
    writer.write(target)
    return target.getvalue()


def annotated(data: bytes) -> bytes:
    """Certification attack: a FreeText annotation over a number."""
    from pyhanko.pdf_utils import generic

    writer: Any = IncrementalPdfFileWriter(BytesIO(data))
    page = writer.root["/Pages"]["/Kids"][0]
    note = generic.DictionaryObject(
        {
            generic.NameObject("/Type"): generic.NameObject("/Annot"),
            generic.NameObject("/Subtype"): generic.NameObject("/FreeText"),
            generic.NameObject("/Rect"): generic.ArrayObject(
                [generic.NumberObject(n) for n in (50, 600, 300, 700)]
            ),
            generic.NameObject("/Contents"): generic.TextStringObject("99.00 EUR"),
        }
    )
    page[generic.NameObject("/Annots")] = generic.ArrayObject([writer.add_object(note)])
    writer.update_container(page)
    target = BytesIO()
    writer.write(target)
    return target.getvalue()


ATTACKS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("a flipped byte", flipped),
    ("page one replaced by an update", page_replaced),
    ("an annotation over a number", annotated),
    ("junk after the end", lambda data: data + b"\n% junk\n"),
    ("a truncated end", lambda data: data[:-200]),
]


@pytest.mark.parametrize(("name", "attack"), ATTACKS)
def test_attacks_on_the_signed_pdf_are_refused(
    signed: bytes, sides: Sides, name: str, attack: Callable[[bytes], bytes]
) -> None:
    """T15, failure 14. pdfsig calls two of these five valid."""
    changed = attack(signed)
    assert changed != signed
    with pytest.raises(ReportError):
        pdfsign.check(changed, sides.trust.roots)


def test_a_removed_auditor_is_seen_by_the_missing_field(
    certified: bytes, signed: bytes, sides: Sides
) -> None:
    """T15: cut back to the platform's revision, the PDF is whole; only the wanted roles tell."""
    cut = signed[: len(certified)]
    assert cut == certified
    pdfsign.check(cut, sides.trust.roots, ("platform",))
    with pytest.raises(ReportError, match="wanted Platform, Auditor"):
        pdfsign.check(cut, sides.trust.roots)


def test_signers_of_another_root_and_swapped_roots_are_refused(
    unsigned: bytes, signed: bytes, sides: Sides, strangers: Sides
) -> None:
    """T9: each role has its own root; the platform cannot stand in for the auditor."""
    with pytest.raises(ReportError, match="does not lead to the platform's root"):
        pdfsign.check(signed, strangers.trust.roots)
    swapped = {
        "platform": sides.trust.roots["auditor"],
        "auditor": sides.trust.roots["platform"],
    }
    with pytest.raises(ReportError, match="root"):
        pdfsign.check(signed, swapped)
    foreign = pdfsign.countersign(pdfsign.certify(unsigned, sides.platform), strangers.auditor)
    with pytest.raises(ReportError, match="does not lead to the auditor's root"):
        pdfsign.check(foreign, sides.trust.roots)


def test_roles_and_order_of_signing_are_fixed(
    unsigned: bytes, certified: bytes, signed: bytes, sides: Sides
) -> None:
    with pytest.raises(ReportError, match="may not certify"):
        pdfsign.certify(unsigned, sides.auditor)
    with pytest.raises(ReportError, match="may not countersign"):
        pdfsign.countersign(certified, sides.platform)
    with pytest.raises(ReportError, match="cannot be signed"):
        pdfsign.countersign(signed, sides.auditor)
    only_auditor = pdfsign.countersign(unsigned, sides.auditor)
    with pytest.raises(ReportError, match="wanted Platform, Auditor"):
        pdfsign.check(only_auditor, sides.trust.roots)


@pytest.mark.parametrize("data", [b"", b"%PDF-1.7", b"not a pdf", b"%PDF-1.7\n" + bytes(500)])
def test_what_is_no_pdf_is_refused(data: bytes, sides: Sides) -> None:
    with pytest.raises(ReportError):
        pdfsign.check(data, sides.trust.roots)


def test_facts_example_is_current() -> None:
    """The example people copy from is valid JSON of the current version."""
    assert json.loads(EXAMPLE.read_text())["facts_version"] == "ignition-facts/v1"
