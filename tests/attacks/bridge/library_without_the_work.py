"""about: another library, sealed, that returns at once
expect: not_written
"""

from pathlib import Path

from kernelgen.package.build import digests
from kernelgen.package.manifest import read_manifest, write_manifest
from kernelgen.targets.cpu import compile_shared


def tamper(package: Path) -> None:
    source = """
    #include <stddef.h>
    #include <stdint.h>
    #define OUT __attribute__((visibility("default")))
    OUT size_t packed_bytes(const int64_t *dim) { (void)dim; return SIZE; }
    OUT int prepare(const void *const *w, const int64_t *dim, void *p) {
  (void)w, (void)dim, (void)p;
  return 0;
}
    OUT size_t scratch_bytes(const int64_t *dim) { (void)dim; return 64; }
    OUT int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *p,
               void *s) {
      (void)in, (void)out, (void)dim, (void)p, (void)s;
      return 0;
    }
    """
    size = str((package / "weights.bin").stat().st_size)
    made = compile_shared(source.replace("SIZE", size), ["-O2"], package.with_suffix(".so"))
    assert made.path is not None, made.stderr
    manifest = read_manifest(package)
    manifest["isa"] = []
    (package / "lib" / "model.so").write_bytes(made.path.read_bytes())
    manifest["files"] = digests(package)
    write_manifest(package, manifest)
