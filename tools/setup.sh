#!/usr/bin/env bash
# Makes sure that what the named groups need is installed: tools/setup.sh build [test] [page]. As root it installs what is
# missing and says so in one line; otherwise it shows the one sudo line and asks, or ends with 3 where nobody can answer.
set -euo pipefail

missing=()
lacks_command() { ! command -v "$1" >/dev/null; }
lacks_header() {
  local folder
  for folder in /usr/include /usr/local/include ${CPATH:+${CPATH//:/ }}; do
    if [[ -e $folder/$1 ]]; then return 1; fi
  done
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
        if lacks_header boost/json.hpp; then missing+=(libboost1.81-dev); fi
        # TLS of the server; without it the program is built all the same, and --tls-cert is refused.
        if lacks_header openssl/ssl.h; then missing+=(libssl-dev); fi
      fi
      ;;
    test)
      if lacks_header gtest/gtest.h; then missing+=(libgtest-dev); fi
      ;;
    page)  # the chat page is tested in a real browser
      if lacks_command chromium; then missing+=(chromium); fi
      if lacks_command chromedriver; then missing+=(chromium-driver); fi
      ;;
    *)
      echo "setup: there is no group '$group'" >&2
      exit 64
      ;;
  esac
done

# older_than WANTED FOUND
older_than() { [[ $1 != "$2" && $(printf '%s\n' "$1" "$2" | sort -V | head -n 1) == "$2" ]]; }

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
      echo "setup: $compiler is g++ $compiler_version; fourfold needs g++ 12 or clang 19 (CXX=... chooses one)" >&2
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
  cmake 3.25 or newer, ninja 1.10, g++ 12 or clang 19, python 3.9
  CLI11 2.1 or newer (header-only)           for the program
  Boost 1.81 or newer (headers only)         for the rooms that read JSON
  OpenSSL 3 (headers and libraries)          optional, for the server's TLS
  GoogleTest 1.12 or newer                   for the tests
  Chromium and its driver                    for the tests of the chat page
  nvcc 12.9 or newer (CUDA toolkit)          optional, for the GPU kernels
END
  exit 3
fi

# Packages already there are never removed for ours.
install=(apt-get install -y --no-install-recommends --no-remove "${missing[@]}")
if [[ $EUID -eq 0 ]]; then
  echo "setup: installing ${missing[*]} (apt-get)"
elif [[ -t 0 && -t 1 ]] && command -v sudo >/dev/null; then
  echo "setup: missing packages. This line installs them:"
  echo "  sudo ${install[*]}"
  read -r -p "Run it now? [y/N] " answer
  if [[ $answer != [yY]* ]]; then exit 3; fi
  install=(sudo "${install[@]}")
else
  echo "setup: missing packages. As root, run:" >&2
  echo "  sudo ${install[*]}" >&2
  exit 3
fi

# A fresh machine has no package lists yet; an old one may have stale ones.
quiet_log=$(mktemp)
trap 'rm -f "$quiet_log"' EXIT
export DEBIAN_FRONTEND=noninteractive
update=(apt-get update)
if [[ ${install[0]} == sudo ]]; then update=(sudo "${update[@]}"); fi
if ! compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null || ! "${install[@]}" >"$quiet_log" 2>&1; then
  if ! "${update[@]}" >"$quiet_log" 2>&1 || ! "${install[@]}" >>"$quiet_log" 2>&1; then
    tail -n 20 "$quiet_log" >&2
    echo "setup: '${install[*]}' failed" >&2
    exit 3
  fi
fi
check_versions
