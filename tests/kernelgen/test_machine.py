from dataclasses import replace

import pytest

from kernelgen.machine import Gpu, Machine, describe, fingerprint_of, isa_flags, vector_floats


@pytest.fixture(scope="module")
def machine() -> Machine:
    return describe(measure=False)


def test_round_trip_keeps_every_field(machine):
    full = replace(machine, gpus=(Gpu("card", 1 << 30, "1.2"),), peak_gflops_per_core=1.5)
    assert Machine.from_dict(full.to_dict()) == full


def test_unmeasured_peaks_are_none(machine):
    assert machine.peak_gflops_per_core is None
    assert machine.peak_gbps_per_core is None


def test_measured_peaks_are_plausible():
    measured = describe()
    assert measured.peak_gflops_per_core is not None
    assert 1.0 < measured.peak_gflops_per_core < 2000.0
    assert measured.peak_gbps_per_core is not None
    assert 0.2 < measured.peak_gbps_per_core < 1000.0


@pytest.mark.parametrize(
    "change",
    [
        {"kernel": "9.9"},
        {"peak_gflops_per_core": 1.0},
        {"peak_gbps_per_core": 2.0},
        {"fingerprint": "x"},
    ],
)
def test_fingerprint_ignores_what_changes_from_boot_to_boot(machine, change):
    assert fingerprint_of(replace(machine, **change)) == machine.fingerprint


@pytest.mark.parametrize(
    "change",
    [
        {"cpu_model": "other"},
        {"isa": ("avx2",)},
        {"cores": 999},
        {"l2_bytes": 1},
        {"gpus": (Gpu("card", 1, "1"),)},
    ],
)
def test_fingerprint_tells_machines_apart(machine, change):
    assert fingerprint_of(replace(machine, **change)) != machine.fingerprint


@pytest.mark.parametrize("field", ["cores", "cpu_model", "isa", "gpus", "fingerprint"])
def test_a_missing_field_is_named(machine, field):
    data = machine.to_dict()
    del data[field]
    with pytest.raises(ValueError, match=f"machine.{field}"):
        Machine.from_dict(data)


def test_flags_follow_the_isa():
    assert vector_floats(("avx2", "avx512f")) == 16
    assert vector_floats(("avx2",)) == 8
    assert vector_floats(("asimd",)) == 4
    assert isa_flags(("avx2", "avx512f"), 16)[0] == "-march=x86-64-v4"
    assert isa_flags(("avx2", "avx512f"), 8) == ("-march=x86-64-v3",)
    assert isa_flags((), 8) == ()
