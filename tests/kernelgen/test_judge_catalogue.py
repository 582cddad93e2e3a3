"""The catalogue of known cheats and rules, row by row: which fixture or test proves that each is
dealt with here, or why it cannot be tried on a CPU.

Rows E.. are exploits seen in public benchmarks of generated kernels, H.. holes found by reading
such harnesses, R.. the rules a harness has to keep, and the last table bug reports of other
projects. A row that names something that does not exist fails.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from kernelgen.attacks import discover

TESTS = Path(__file__).resolve().parents[1]
CASES = {case.name: case for case in discover()}

DTYPES = "kernelgen/test_judge_dtypes.py::"
TRIAL = "kernelgen/test_judge_trial.py::"
RULES = "kernelgen/test_judge_rules.py::"
COMPARE = "kernelgen/test_judge_compare.py::"
BOX = "kernelgen/test_sandbox.py::"
CLAIMS = "kernelgen/test_judge_claims.py::"
INTAKE = "kernelgen/test_judge_intake.py::"

EXPLOITS: dict[str, tuple[str, tuple[str, ...]]] = {
    "E01": ("returns memory that still holds the answer", ("no_op", "trusts_old_scratch")),
    "E02": ("edits its inputs", ("writes_its_input", "changes_packed_weights")),
    "E03": ("zeros below an absolute tolerance", ("zeros", "zeros_where_small")),
    "E04": ("constant output", ("constant_output",)),
    "E05": ("zero weights make it constant", ("ignores_the_bias", "keeps_the_first_weights")),
    "E06": ("copies its input", ("copies_input", "skips_the_layernorm")),
    "E07": ("leaves out learned weights", ("ignores_the_bias", "ignores_gamma_and_beta")),
    "E08": (
        "hidden lower precision",
        (
            "bfloat16",
            "bits_of_tf32",
            "sums_in_bfloat16",
            "one_factor_in_bfloat16",
            "two_bfloat16_parts",
        ),
    ),
    "E09": (
        "another path at the timed sizes",
        ("wrong_only_at_the_timed_size", "right_only_at_the_timed_size"),
    ),
    "E10": ("another precision when timed", ("wrong_after_the_tests", "knows_its_caller")),
    "E11": (
        "global precision flags",
        ("flushes_denormals", "rounds_towards_zero_for_all", "prepares_another_rounding"),
    ),
    "E12": ("tells the checker from the timer", ("knows_its_caller", "knows_the_guard_pages")),
    "E13": ("memo by pointer", ("keeps_results_by_pointer",)),
    "E15": (
        "memo by fingerprint",
        ("keeps_results_by_fingerprint", "keeps_bytes_by_fingerprint"),
    ),
    "E16": ("repacked weights kept over calls", ("keeps_the_first_weights",)),
    "E18": ("several calls in one", ("one_call_late", "skips_every_fifth_call")),
    "E20": (
        "does not do the work, old output passes",
        ("skips_every_fifth_call", "slower_than_the_floor_allows"),
    ),
    "E21": ("work on a side thread", ("starts_a_thread", "forks", "one_call_late")),
    "E22": ("lazy result", ("one_call_late",)),
    "E23": ("replaces the timer", ("exports_a_clock", "exports_memcpy", "defines_harness_names")),
    "E24": (
        "patches timer or harness",
        ("patches_its_caller", "makes_code_writable", "takes_over_the_harness"),
    ),
    "E25": (
        "forges the result channel",
        ("forges_an_answer", "exits_with_success", "takes_over_the_harness"),
    ),
    "E26": (
        "steals the key of the channel",
        ("takes_over_the_harness", "reads_another_process", "opens_a_file"),
    ),
    "E27": ("finds the expected output, or NaN", ("nan_wildcard", "infinity_wildcard")),
    "E28": (
        "scans memory for the expected output",
        (
            BOX + "test_only_the_c_library_is_visible",
            RULES + "test_the_child_never_holds_an_oracle",
        ),
    ),
    "E29": (
        "predicts the inputs",
        (COMPARE + "test_the_same_seed_gives_the_same_rounds_and_another_gives_others",),
    ),
    "E30": (
        "slow warm-up",
        (RULES + "test_a_slow_warm_up_gains_nothing", "takes_over_the_harness"),
    ),
    "E32": ("right at first, wrong later", ("wrong_after_the_tests",)),
    "E33": (
        "one shape driven to nothing",
        (
            RULES + "test_one_impossible_size_refuses_all",
            TRIAL + "test_a_time_above_the_roofline_is_refused",
        ),
    ),
    "E34": ("hands the work to a library", ("calls_a_library", "opens_a_library")),
    "E35": ("falls back in silence", ("falls_back_quietly", "returns_an_error")),
    "E37": (
        "edits the harness or the problem",
        ("opens_a_file", RULES + "test_the_harness_belongs_to_the_judge"),
    ),
    "E38": ("copies an earlier winner", ("opens_a_library", "opens_a_file")),
    "E39": (
        "assumes a structure",
        ("assumes_equal_lengths", "attends_to_the_first_eight", "counts_positions_through"),
    ),
    "E40": ("asks for too much and fails", ("asks_for_everything", "returns_an_error")),
    "E41": (
        "out of bounds",
        (
            "writes_one_past_the_end",
            "writes_one_before_the_start",
            "reads_past_the_end",
            "reads_before_the_start",
            "writes_past_its_scratch",
            "overruns_its_own_array",
        ),
    ),
    "E42": (
        "prints a verdict",
        (
            "prints_a_verdict_and_exits",
            "prints_without_a_library",
            "forged_verdict_lines",
            "verdict_without_a_kernel",
            "prints_a_verdict",
        ),
    ),
    "E45": (
        "more threads than the other side",
        ("starts_a_thread", RULES + "test_cpu_time_beyond_one_core_is_refused"),
    ),
    "E46": ("easy data", (TRIAL + "test_feed_never_repeats_floats_and_keeps_structure",)),
    "E47": ("failures dropped from the mean", (RULES + "test_a_failure_at_one_size_refuses_all",)),
    "E48": (
        "compares a sum or a shape only",
        ("one_wrong_in_thirty_thousand", "leaves_the_last_unwritten"),
    ),
    "H1": ("matched ratio", ("one_wrong_in_thirty_thousand",)),
    "H2": ("same contents at new addresses", ("keeps_results_by_fingerprint",)),
    "H3": ("swallowed errors in a check", ("returns_an_error", "prepares_another_rounding")),
    "H4": ("shared or uninitialised outputs", ("no_op", "adds_to_the_output")),
    "H5": (
        "a text scan that can be fooled",
        ("constructor_behind_macros", "raw_string_hides_code", "honest_helpers_and_strings"),
    ),
    "H6": ("public seed", (RULES + "test_no_seed_comes_from_a_fixed_number",)),
}

NOT_HERE = {
    "E31": "no user program can pin data in a CPU cache; new contents and addresses at every call",
    "E44": "the kernel is called through a pointer into another object, and its output is read",
}
"""Exploits that need a device this judge does not run, or that have no way to be tried."""

HOLDS = {
    "R1": (
        BOX + "test_outside_the_walls_it_is_that_user_too",
        BOX + "test_no_socket",
        BOX + "test_only_the_c_library_is_visible",
        "forged_verdict_lines",
    ),
    "R2": ("no_op", "writes_its_input", "overruns_its_own_array", "reads_past_the_end"),
    "R3": (
        COMPARE + "test_the_plan_covers_all_regimes_and_tails",
        COMPARE + "test_a_test_set_that_forgives_cheats_does_not_prove_itself",
        TRIAL + "test_a_test_set_that_proves_nothing_is_the_judges_trouble",
        DTYPES + "test_an_output_that_no_round_proves_is_named",
    ),
    "R4": (
        COMPARE + "test_special_values",
        COMPARE + "test_integers_must_be_exact_where_float32_is",
        DTYPES + "test_integers_are_compared_as_integers",
        RULES + "test_the_bound_grows_with_the_length_and_stays_below_the_output",
    ),
    "R5": (
        TRIAL + "test_feed_never_repeats_floats_and_keeps_structure",
        "wrong_after_the_tests",
        RULES + "test_contents_are_written_after_the_addresses_are_known",
    ),
    "R6": (
        TRIAL + "test_the_faster_wins_and_the_slower_loses",
        TRIAL + "test_the_interval_covers_the_ratio_and_narrows_with_passes",
        BOX + "test_a_frozen_program_uses_no_time_and_goes_on_after",
    ),
    "R7": (
        TRIAL + "test_a_time_above_the_roofline_is_refused",
        RULES + "test_data_beyond_all_caches_comes_at_the_speed_of_memory",
    ),
    "R8": ("kernelgen/test_bench.py::*",),
    "R9": ("kernelgen/test_agent_search.py::*",),
    "R10": (RULES + "test_a_failure_at_one_size_refuses_all",),
    "R11": (
        BOX + "test_only_the_c_library_is_visible",
        RULES + "test_the_harness_belongs_to_the_judge",
        "asks_for_a_plug_in",
        "includes_a_password_file",
    ),
    "R12": ("attacks/test_attacks.py::test_the_suite_is_large_enough",),
}

REPORTS = {
    "oneDNN#5717 NaN of the padding leaks": ("multiplies_padding_by_zero",),
    "oneDNN#1805 u8 x s8 saturates": ("saturates_in_sixteen_bits",),
    "blis#552 beta 0 must not read C": ("adds_to_the_output",),
    "OpenBLAS#171 tail lanes": ("wrong_on_tails",),
    "ZenDNN#29 a kernel for another type": ("takes_floats_for_doubles",),
    "buddy-mlir#837 softmax of what is masked": ("softmax_without_the_maximum", "masked_plain"),
    "Lsglang#23 named for what it does not hold": (
        "names_a_matrix_unit",
        "claims_a_matrix_unit",
        CLAIMS + "test_a_flag_alone_proves_nothing",
    ),
    "tinygrad#13379 458 GB/s claimed": (RULES + "test_a_claim_beyond_memory_bandwidth_is_refused",),
    "tvm#13354 zero run time": (RULES + "test_a_claim_beyond_memory_bandwidth_is_refused",),
    "tvm#5215 tuned on empty tensors": (
        TRIAL + "test_feed_never_repeats_floats_and_keeps_structure",
    ),
    "triton#9230 candidates share an output": (RULES + "test_two_sides_never_share_an_output",),
    "KernelBench#165 zeros pass below atol": ("zeros_where_small",),
    "BackendBench#133 a failed operator counted as 1": (
        RULES + "test_a_failure_at_one_size_refuses_all",
    ),
    "autocomp gemmini_eval: verdict parsed from output": ("prints_a_verdict",),
    "pygpubench exploits: result channel": ("forges_an_answer", "takes_over_the_harness"),
}


@cache
def _functions(path: str) -> frozenset[str]:
    tree = ast.parse((TESTS / path).read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def _missing(proofs: tuple[str, ...]) -> list[str]:
    bad = []
    for proof in proofs:
        path, separator, name = proof.partition("::")
        if not separator:
            known = proof in CASES
        elif name == "*":
            known = any(test.startswith("test_") for test in _functions(path))
        else:
            known = name in _functions(path)
        bad += [] if known else [proof]
    return bad


@pytest.mark.parametrize("row", sorted(EXPLOITS))
def test_every_exploit_has_a_proof(row: str) -> None:
    about, proofs = EXPLOITS[row]
    assert about
    assert proofs
    assert _missing(proofs) == []


@pytest.mark.parametrize("row", sorted(HOLDS))
def test_every_rule_has_a_proof(row: str) -> None:
    assert _missing(HOLDS[row]) == []


@pytest.mark.parametrize("report", sorted(REPORTS))
def test_every_report_has_a_proof(report: str) -> None:
    assert _missing(REPORTS[report]) == []


def test_no_row_is_forgotten_and_none_is_in_two_tables() -> None:
    # 14, 17, 19, 36 and 43 are not in the catalogue: they need a GPU runtime or a Python grader.
    numbers = set(range(1, 49)) - {14, 17, 19, 36, 43}
    rows = {f"E{number:02}" for number in numbers}
    assert rows == {row for row in [*EXPLOITS, *NOT_HERE] if row.startswith("E")}
    assert not set(EXPLOITS) & set(NOT_HERE)
    assert {f"H{number}" for number in range(1, 7)} <= set(EXPLOITS)
    assert set(HOLDS) == {f"R{number}" for number in range(1, 13)}


def test_a_missing_proof_would_be_found() -> None:
    assert _missing(("no_such_fixture", TRIAL + "test_no_such", "zeros")) == [
        "no_such_fixture",
        TRIAL + "test_no_such",
    ]
