#!/usr/bin/env bash
# Makes sure that what the named groups need is installed: tools/setup.sh build [test] [page] [package] [deb] [image] [for-x86-64]
# [for-aarch64]. As root it installs what is missing and says so in one line; otherwise it shows the one sudo line and asks, or
# ends with 3 where nobody can answer. Packages of another architecture are for apt to know first: that line is shown, and not run.
set -euo pipefail

missing=()
# Where headers are looked for; tests name another folder.
header_folders=(${FOURFOLD_HEADER_FOLDERS:-/usr/include /usr/local/include} ${CPATH:+${CPATH//:/ }})
lacks_command() { ! command -v "$1" >/dev/null; }
lacks_header() {
  local folder
  for folder in "${header_folders[@]}"; do
    if [[ -e $folder/$1 ]]; then return 1; fi
  done
}

# lacks_library FILE [MACHINE]: this one's, or another's; Debian has them side by side.
lacks_library() {
  local folder place=${FOURFOLD_LIBRARY_FOLDER:-/usr}  # tests name another
  local folders=("$place/lib" "$place/lib/$HOSTTYPE-linux-gnu" "$place/lib64")
  if [[ -n ${2:-} ]]; then folders=("$place/lib/$2-linux-gnu"); fi
  for folder in "${folders[@]}"; do
    if [[ -e $folder/$1 ]]; then return 1; fi
  done
}

# other_machine COMPILER MACHINE ARCHITECTURE: what builds for it, the libraries a wheel has inside, and what runs its programs.
other_machine() {
  local machine=$2 architecture=$3 library ours=() theirs=()
  if lacks_command "$machine-linux-gnu-g++"; then ours+=("$1"); fi
  if lacks_command "qemu-$machine"; then ours+=(qemu-user); fi
  if lacks_library libc.so.6 "$machine"; then theirs+=("libc6:$architecture"); fi
  for library in crypto:libssl edit:libedit tinfo:libncurses bsd:libbsd md:libmd; do
    if lacks_library "lib${library%:*}.a" "$machine"; then theirs+=("${library#*:}-dev:$architecture"); fi
  done
  missing+=("${ours[@]}" "${theirs[@]}")
  if [[ ${#theirs[@]} -eq 0 ]] || dpkg --print-foreign-architectures 2>/dev/null | grep -qx "$architecture"; then return; fi
  {
    echo "setup: a wheel for $machine needs libraries of that architecture, which apt does not know here. On Debian, as root:"
    echo "  dpkg --add-architecture $architecture && apt-get update"
    echo "  apt-get install -y --no-install-recommends --no-remove ${ours[*]} ${theirs[*]}"
  } >&2
  exit 3
}

# older_than WANTED FOUND
older_than() { [[ $1 != "$2" && $(printf '%s\n' "$1" "$2" | sort -V | head -n 1) == "$2" ]]; }

# Boost has JSON since 1.75; what we need of it came with this one.
boost_minimum=1.81
lacks_boost() {
  local folder version
  for folder in "${header_folders[@]}"; do
    if [[ ! -e $folder/boost/json.hpp ]]; then continue; fi
    version=$(sed -n 's/^#define BOOST_LIB_VERSION "\(.*\)"/\1/p' "$folder/boost/version.hpp")
    if ! older_than "$boost_minimum" "${version//_/.}"; then return 1; fi
  done
}

# The package with Boost's headers: the distribution's own version where that is new enough (Debian 13, Ubuntu 24.04), else
# the newest that stands beside it (Debian 12: libboost1.81-dev). Fails where apt offers neither.
boost_package() {
  local version newest
  version=$(apt-cache policy libboost-dev 2>/dev/null | sed -n 's/^ *Candidate: \([0-9.]*\).*/\1/p')
  if [[ -n $version ]] && ! older_than "$boost_minimum" "$version"; then
    echo libboost-dev
    return
  fi
  newest=$(apt-cache pkgnames libboost1. 2>/dev/null | sed -n 's/^libboost\(1\.[0-9]*\)-dev$/\1/p' | sort -V | tail -n 1)
  if [[ -z $newest ]] || older_than "$boost_minimum" "$newest"; then return 1; fi
  echo "libboost$newest-dev"
}

for group in "$@"; do
  case $group in
    build)
      if lacks_command cmake; then missing+=(cmake); fi
      if lacks_command ninja; then missing+=(ninja-build); fi
      if [[ -z ${CXX:-} ]] && lacks_command g++ && lacks_command c++; then missing+=(g++); fi
      if lacks_command python3; then missing+=(python3); fi
      # A folder written by ./dev bundle stands in for the header-only packages.
      if [[ ${FOURFOLD_CMAKE:-} != *FOURFOLD_BUNDLE=* ]]; then
        if lacks_header CLI/CLI.hpp; then missing+=(libcli11-dev); fi
        if lacks_boost; then missing+=(boost); fi
        # Reads --config; without it that option is refused.
        if lacks_header toml++/toml.h; then missing+=(libtomlplusplus-dev); fi
        # TLS of the server and of fourfold pull; without it the program is built all the same, and both are refused.
        if lacks_header openssl/ssl.h; then missing+=(libssl-dev); fi
        # The line editor of `fourfold chat`; without it lines are read plainly.
        if lacks_header histedit.h; then missing+=(libedit-dev); fi
      fi
      ;;
    test)
      if lacks_header gtest/gtest.h; then missing+=(libgtest-dev); fi
      ;;
    page)  # the chat page is tested in a real browser
      if lacks_command chromium; then missing+=(chromium); fi
      if lacks_command chromedriver; then missing+=(chromium-driver); fi
      ;;
    package)  # libraries that a wheel has inside
      if lacks_library libtinfo.a; then missing+=(libncurses-dev); fi
      if lacks_library libbsd.a; then missing+=(libbsd-dev); fi
      if lacks_library libmd.a; then missing+=(libmd-dev); fi
      ;;
    for-x86-64) other_machine g++-x86-64-linux-gnu x86_64 amd64 ;;
    for-aarch64) other_machine g++-aarch64-linux-gnu aarch64 arm64 ;;
    deb)
      if lacks_command dpkg-shlibdeps; then missing+=(dpkg-dev); fi
      ;;
    image)
      if lacks_command mmdebstrap; then missing+=(mmdebstrap); fi
      if lacks_command umoci; then missing+=(umoci); fi
      ;;
    *)
      echo "setup: there is no group '$group'" >&2
      exit 64
      ;;
  esac
done

check_versions() {
  local cmake_version compiler=${CXX:-} compiler_version
  cmake_version=$(cmake --version | sed -n '1s/[^0-9]*\([0-9.]*\).*/\1/p')
  if older_than 3.25 "$cmake_version"; then
    echo "setup: cmake is version $cmake_version; fourfold needs 3.25 or newer" >&2
    exit 3
  fi
  if [[ -z $compiler ]]; then
    compiler=$(command -v c++ || command -v g++)
    compiler_version=$("$compiler" -dumpversion)
    if "$compiler" --version | head -n 1 | grep -q clang; then return; fi
    if older_than 12 "${compiler_version%%.*}"; then
      echo "setup: $compiler is g++ $compiler_version; fourfold needs g++ 12 or clang 16 (CXX=... chooses one)" >&2
      exit 3
    fi
  fi
}

if [[ ${#missing[@]} -eq 0 ]]; then
  check_versions
  exit 0
fi

if ! command -v apt-get >/dev/null; then
  cat >&2 <<END
setup: missing, by their Debian names: ${missing[*]}
Install these with your distribution's tools, then start again:
  cmake 3.25 or newer, ninja 1.10, g++ 12 or clang 16, python 3.9
  CLI11 2.1 or newer (header-only)           for the program
  Boost 1.81 or newer (headers only)         for the rooms that read JSON
  OpenSSL 3 (headers and libraries)          optional, for the server's TLS and for fetching models by name
  toml++ 3.3 or newer (header-only)          optional, for fourfold serve --config
  libedit (headers and library)              optional, for editing lines in fourfold chat
  GoogleTest 1.12 or newer                   for the tests
  Chromium and its driver                    for the tests of the chat page
  nvcc 12.9 or newer (CUDA toolkit)          optional, for the GPU kernels
END
  exit 3
fi

quiet_log=$(mktemp)
trap 'rm -f "$quiet_log"' EXIT
export DEBIAN_FRONTEND=noninteractive
as_root=()
if [[ $EUID -ne 0 ]]; then as_root=(sudo); fi
update=("${as_root[@]}" apt-get update)
fresh=false  # the package lists are of today
update_lists() {
  fresh=true
  if "${update[@]}" >"$quiet_log" 2>&1; then return; fi
  tail -n 20 "$quiet_log" >&2
  echo "setup: '${update[*]}' failed" >&2
  exit 3
}
may_ask() { [[ -t 0 && -t 1 ]] && command -v sudo >/dev/null; }

# Which package Boost is in, apt knows; a fresh machine has no lists yet, and an old one may have stale ones.
if [[ $EUID -eq 0 ]] && ! compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null; then update_lists; fi
for i in "${!missing[@]}"; do
  if [[ ${missing[i]} != boost ]]; then continue; fi
  if ! missing[i]=$(boost_package) && [[ $EUID -eq 0 && $fresh == false ]]; then
    update_lists
    missing[i]=$(boost_package) || true
  fi
  if [[ -n ${missing[i]} ]]; then continue; fi
  echo "setup: apt offers no Boost from $boost_minimum on (libboost-dev, or a libboost1.NN-dev beside it)" >&2
  if [[ $EUID -ne 0 ]]; then echo "  Its lists may be old: ${update[*]}" >&2; fi
  echo "  Or take the headers from boost.org, and name their folder: CPATH=DIR ./dev ..." >&2
  exit 3
done

# Packages already there are never removed for ours.
install=("${as_root[@]}" apt-get install -y --no-install-recommends --no-remove "${missing[@]}")
if [[ $EUID -eq 0 ]]; then
  echo "setup: installing ${missing[*]} (apt-get)"
elif may_ask; then
  echo "setup: missing packages. This line installs them:"
  echo "  ${install[*]}"
  read -r -p "Run it now? [y/N] " answer
  if [[ $answer != [yY]* ]]; then exit 3; fi
else
  echo "setup: missing packages. As root, run:" >&2
  echo "  ${install[*]}" >&2
  exit 3
fi

if ! "${install[@]}" >"$quiet_log" 2>&1; then
  if [[ $fresh == false ]]; then
    update_lists
    if "${install[@]}" >"$quiet_log" 2>&1; then
      check_versions
      exit 0
    fi
  fi
  tail -n 20 "$quiet_log" >&2
  echo "setup: '${install[*]}' failed" >&2
  exit 3
fi
check_versions
