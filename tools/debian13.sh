#!/usr/bin/env bash
# Builds the program in a Debian 13 made for it, with that release's own g++, clang and packages, and has it answer:
# tools/debian13.sh [RESULT]. A part of ./dev test --long. Needs root and mmdebstrap or debootstrap; ends with 77 and a line
# "skipped: ..." where a chroot is not to be had. RESULT gets a dated report. FOURFOLD_JOBS=N limits the parallel jobs;
# FOURFOLD_CCACHE=DIR compiles through a ccache whose folder outlives the run, for whoever tries it again and again; and
# FOURFOLD_SYSTEM=DIR keeps the system and its builds there, and goes on with what a run before had built; RESULT says so.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
result=${1:-}
release=trixie mirror=${FOURFOLD_MIRROR:-http://deb.debian.org/debian} jobs=${FOURFOLD_JOBS:-$(nproc)}
cache=${FOURFOLD_CCACHE:-}
if [[ -n $cache ]]; then mkdir -p "$cache"; fi

skip() {
  echo "skipped: $*"
  exit 77
}
if [[ $EUID -ne 0 ]]; then skip "a chroot needs root"; fi
if ! why=$(unshare --mount true 2>&1); then skip "no mounts of its own are allowed here ($why)"; fi
if ! command -v mmdebstrap >/dev/null && ! command -v debootstrap >/dev/null; then
  skip "neither mmdebstrap nor debootstrap is installed (apt-get install mmdebstrap)"
fi

# All mounts are made in a namespace of their own, so they are gone before the folder is removed, however this ends.
folder=${FOURFOLD_SYSTEM:-}
if [[ -z $folder ]]; then
  folder=$(mktemp -d "${TMPDIR:-/var/tmp}/fourfold-debian13.XXXXXX")
  trap 'rm -rf --one-file-system "$folder"' EXIT
fi
system=$folder/system log=$folder/log

make_system() {
  if command -v mmdebstrap >/dev/null; then
    mmdebstrap --variant=minbase --include=ca-certificates "$release" "$system" "$mirror"
  else
    debootstrap --variant=minbase "$release" "$system" "$mirror"
  fi
}
kept=''
if [[ -d $system/fourfold ]]; then
  kept=", gone on with after a run that had stopped"
  make_system() { true; }
fi
mkdir -p "$folder"
echo "debian13: ${kept:+not }a fresh $release from $mirror"
if ! make_system >"$log" 2>&1; then
  if grep -qiE 'could not (resolve|connect)|connection (refused|timed out)|temporary failure|cannot initiate' "$log"; then
    skip "$mirror cannot be reached: $(tail -n 1 "$log")"
  fi
  tail -n 20 "$log"
  echo "debian13: the system could not be made" >&2
  exit 1
fi

# What git knows, as it is here; changes not committed yet among it.
commit=$(git describe --always --dirty --exclude '*' 2>/dev/null || echo unknown)
mkdir -p "$system/fourfold" "$system/ccache"
find "$system/fourfold" -mindepth 1 -maxdepth 1 -not -name 'build-*' -exec rm -rf {} +  # what a run before has left
git ls-files -z | tar --create --null --files-from - | tar --extract --directory "$system/fourfold"
cp /etc/resolv.conf "$system/etc/resolv.conf"

inside() {  # inside 'commands': in the repository, as its only user would
  # shellcheck disable=SC2016  # for the shell within
  unshare --mount bash -c 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" &&
    if [[ -n $2 ]]; then mount --bind "$2" "$0/ccache"; fi &&
    exec chroot "$0" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 CCACHE_DIR=/ccache \
      bash -euo pipefail -c "cd /fourfold; $1"' "$system" "$1" "$cache"
}

SECONDS=0
inside 'tools/setup.sh build'
# Its package is not there, and nobody asked for tests: the configuration must not end.
inside '[[ ! -e /usr/include/gtest/gtest.h ]]'
options=(-DFOURFOLD_WERROR=ON)
packages=clang
if [[ -n $cache ]]; then
  packages+=' ccache'
  options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
fi
inside "apt-get install -y --no-install-recommends $packages" >"$log" 2>&1 || { tail -n 20 "$log"; exit 1; }
built=()
answers=()
build_with() {  # build_with COMPILER: in a folder of its own, and has it answer
  local place=build-$1 start=$SECONDS together=OFF answer
  # By g++ as ./dev builds it, files of a room together; by clang each alone, which finds what one forgets to include.
  if [[ $1 == g++ ]]; then together=ON; fi
  inside "cmake -S . -B $place -G Ninja -DCMAKE_CXX_COMPILER=$1 -DFOURFOLD_TOGETHER=$together ${options[*]}" >"$log" 2>&1 || { cat "$log"; exit 1; }
  grep 'fourfold: ' "$log"
  inside "ninja -C $place -j $jobs -k 0 fourfold" >"$log" 2>&1 ||
    { grep -A 12 -E '(error|warning): ' "$log" || tail -n 60 "$log"; exit 1; }
  built+=("$(inside "$1 --version | head -n 1"): $(((SECONDS - start) / 60)) min $(((SECONDS - start) % 60)) s")
  answer=$(inside "echo What are you? | $place/fourfold run --seed 1 2>/dev/null")
  echo "debian13: $1: $answer"
  if [[ $answer != *"demonstration model"* ]]; then
    echo "debian13: that is not the answer of the model that comes with the program" >&2
    exit 1
  fi
  answers+=("$answer")
  inside "$place/fourfold version && ldd $place/fourfold | grep libedit >/dev/null"
}
build_with g++
build_with clang++
# The same sampled words: sums have one order, whoever compiles them.
if [[ ${answers[0]} != "${answers[1]}" ]]; then
  echo "debian13: the two programs answer differently" >&2
  exit 1
fi
if [[ -n $result ]]; then
  {
    echo "date: $(date +%F)"
    echo "verdict: passed"
    echo "commit: $commit"
    echo "machine: $(uname -m), $jobs of $(nproc) cores"
    echo "system: Debian $(inside 'cat /etc/debian_version'), Boost $(inside \
      "sed -n 's/^#define BOOST_LIB_VERSION \"\\(.*\\)\"/\\1/p' /usr/include/boost/version.hpp"), $(inside 'cmake --version | head -n 1')"
    printf 'built with -Werror, without GoogleTest, by %s\n' "${built[@]/%/$kept${cache:+, through a ccache that may have been filled before}}"
    echo "command: tools/debian13.sh $result"
    echo "fourfold run, both: ${answers[0]}"
  } >"$result"
  cat "$result"
fi
echo "debian13: passed"
