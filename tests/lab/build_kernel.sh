#!/usr/bin/env bash
# Builds the kernel of the lab from this distribution's source and lab.config: idle page tracking, DAMON, soft-dirty
# pages, 5-level paging, memory cgroups, ext4 and 9p, all built in; what virtme-ng boots. About 20 minutes on 2 CPUs.
#   tests/lab/build_kernel.sh CACHE [configure]     with "configure" it ends once the configuration is known to be good
# Leaves CACHE/lab/bzImage. Needs Debian's linux-source, which is downloaded, and a compiler for it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${1:?where to: a directory for kernels}
until=${2:-bzImage}
fail() { echo "lab kernel: $*" >&2; exit 1; }

for need in flex bison bc gcc make pahole xz apt-get dpkg-deb; do
  command -v "$need" >/dev/null || fail "$need is missing (apt-get install flex bison bc gcc make dwarves xz-utils \
libelf-dev libssl-dev)"
done
for header in libelf.h openssl/opensslv.h; do
  echo "#include <$header>" | gcc -E - >/dev/null 2>&1 || fail "$header is missing (apt-get install libelf-dev libssl-dev)"
done

package=$(apt-cache search --names-only '^linux-source-[0-9.]+$' | cut -d' ' -f1 | sort -V | tail -1)
[ -n "$package" ] || fail "apt knows no linux-source package (apt-get update?)"
build=$cache/lab/build
mkdir -p "$build"
if [ ! -e "$build/unpacked" ] || [ "$(cat "$build/unpacked")" != "$package" ]; then
  rm -rf "$build" && mkdir -p "$build/package"
  (cd "$build/package" && apt-get download -qq "$package" && dpkg-deb -x ./*.deb .)
  mkdir "$build/source"
  tar -xJf "$build"/package/usr/src/linux-source-*.tar.xz -C "$build/source" --strip-components=1
  rm -rf "$build/package"
  echo "$package" > "$build/unpacked"
fi

cd "$build/source"
make -s tinyconfig
scripts/kconfig/merge_config.sh -m -Q .config "$here/lab.config" >/dev/null
make -s olddefconfig
# Kconfig drops an option without a word when what it depends on is missing.
lost=$(sed -n 's/^\(CONFIG_[A-Z0-9_]*\)=\(.*\)$/\1 \2/p' "$here/lab.config" | while read -r option value; do
  if [ "$value" = n ]; then
    ! grep -q "^$option=" .config || echo "$option (it should be off)"
  else
    grep -q "^$option=$value\$" .config || echo "$option"
  fi
done)
[ -z "$lost" ] || fail "$package does not take these options of lab.config:" $lost
echo "lab kernel: $package, $(grep -c =y .config) options, all of lab.config are set"
[ "$until" = configure ] && exit 0

make -s -j"$(nproc)" bzImage
cp arch/x86/boot/bzImage "$cache/lab/bzImage"
echo "lab kernel: $cache/lab/bzImage (MEMTUI_LAB_KERNEL=lab)"
