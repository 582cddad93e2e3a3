#!/usr/bin/env bash
# Make sure the system tools of one purpose are present; install Debian's packages when missing.
#
# usage: tools/system_packages.sh demo|test|services|cross
# Exit 0: everything needed is there. Exit 1: something needed is missing and could not be installed.
set -eu

purpose=${1:?usage: system_packages.sh demo|test|services|cross}

# One row per tool: command or file to look for | Debian package | need (required or optional).
demo_tools="
gcc|gcc|required
ld|binutils|required
nm|binutils|required
ssh-keygen|openssh-client|required
pdfsig|poppler-utils|optional
bwrap|bubblewrap|optional
"
test_tools="
pdfsig|poppler-utils|required
bwrap|bubblewrap|required
openssl|openssl|required
chromium|chromium|required
hledger|hledger|required
qpdf|qpdf|required
"
services_tools="
redis-server|redis-server|required
pg_ctlcluster|postgresql|required
"
# Kernels for ARM and RISC-V: compilers, C libraries, emulator, scheduling models.
cross_tools="
aarch64-linux-gnu-gcc|gcc-aarch64-linux-gnu|required
/usr/aarch64-linux-gnu/include/stdlib.h|libc6-dev-arm64-cross|required
riscv64-linux-gnu-gcc|gcc-riscv64-linux-gnu|required
/usr/riscv64-linux-gnu/include/stdlib.h|libc6-dev-riscv64-cross|required
clang-19|clang-19|required
ld.lld-19|lld-19|required
llvm-mca-19|llvm-19|required
qemu-aarch64|qemu-user|required
qemu-riscv64|qemu-user|required
prlimit|util-linux|required
"
case $purpose in
demo) rows=$demo_tools ;;
test) rows="$demo_tools$test_tools" ;;
services) rows="$demo_tools$test_tools$services_tools" ;;
cross) rows="$demo_tools$cross_tools" ;;
*)
    echo "purpose: got '$purpose', wanted demo, test, services or cross" >&2
    exit 1
    ;;
esac

missing=() required_missing=()
while IFS='|' read -r tool package need; do
    [ -n "$tool" ] || continue
    case $tool in
    /*) if [ -e "$tool" ]; then continue; fi ;;
    *) if command -v "$tool" >/dev/null 2>&1; then continue; fi ;;
    esac
    missing+=("$package")
    [ "$need" = required ] && required_missing+=("$package")
done <<<"$rows"
# The C library's headers come in their own package; gcc alone may lack them.
if [ ! -e /usr/include/stdlib.h ]; then
    missing+=(libc6-dev) required_missing+=(libc6-dev)
fi
[ "${#missing[@]}" -gt 0 ] || exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing Debian packages: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    log=$(mktemp)
    if apt-get update >"$log" 2>&1 &&
        apt-get install -y --no-install-recommends "${missing[@]}" >>"$log" 2>&1; then
        rm -f "$log"
        exit 0
    fi
    tail -n 5 "$log" >&2
fi
if [ "${#required_missing[@]}" -gt 0 ]; then
    echo "missing system packages: ${required_missing[*]}" >&2
    echo "install them (Debian: apt-get install ${required_missing[*]}) and run again" >&2
    exit 1
fi
echo "optional system packages not installed: ${missing[*]} (the run says what that costs)" >&2
