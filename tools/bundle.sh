# shellcheck shell=bash disable=SC2154
# ./dev bundle DIR: the headers of the header-only dependencies that our sources really include, and nothing else.
# Sourced by dev.

command_bundle() {
  if [[ $# -ne 1 ]]; then fail 64 "bundle needs the folder to write: ./dev bundle DIR"; fi
  local folder=$1 source header relative count=0
  if [[ -e $folder/include ]]; then fail 1 "$folder/include exists; name a new folder"; fi
  set_up build
  mkdir -p "$folder/include"
  # The closure of each source that names a dependency, as the compiler sees it.
  while read -r source; do
    "${CXX:-c++}" -std=c++20 -M -Isrc -Iinclude "$source" | tr -s ' \\\n' '\n' | grep -E '/include/(CLI|boost|toml[+][+])/' || true
  done < <(grep -rlE '#include <(CLI|boost|toml[+][+])/' src --include='*.cpp') | sort -u >"$folder/headers.txt"
  while read -r header; do
    relative=${header#*/include/}
    mkdir -p "$folder/include/$(dirname "$relative")"
    cp "$header" "$folder/include/$relative"
    count=$((count + 1))
  done <"$folder/headers.txt"
  # CMake reads the version here, whether or not a source includes it.
  if compgen -G "$folder/include/boost/*" >/dev/null && [[ ! -e $folder/include/boost/version.hpp ]]; then
    cp /usr/include/boost/version.hpp "$folder/include/boost/"
  fi
  rm "$folder/headers.txt"
  if [[ $count -eq 0 ]]; then fail 1 "no source includes a bundled dependency; nothing to copy"; fi
  echo "bundle: $count headers, $(du -sh "$folder" | cut -f 1), in $folder"
  echo "There: cmake -S . -B build -DFOURFOLD_BUNDLE=$folder && cmake --build build"
  echo "(libedit, OpenSSL and GoogleTest are no headers alone: what is installed there is used, the rest is left out.)"
}
