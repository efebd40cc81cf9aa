# shellcheck shell=bash disable=SC2154
# ./dev package wheel|deb|image: what users install, into dist/. All from one build (preset package, build-package/), linked
# for the wheel and the image so that glibc is all they need, for the .deb with this distribution's libraries. With nvcc it has
# the kernels of every chip; FOURFOLD_CMAKE=-DFOURFOLD_CUDA=off leaves them out. nvcc goes through ccache where there is one.
# ./dev package wheel --for x86-64|aarch64: the wheel of that machine; where this is another, by cross compilers, into
# build-package-x86-64/ or build-package-aarch64/. Sourced by dev.

auditwheel=6.8.2

# build_packaged PRESET ON|OFF: the program, both libraries and the list of what is inside, portable or not.
build_packaged() {
  FOURFOLD_CMAKE="${FOURFOLD_CMAKE:-} -DFOURFOLD_PORTABLE=$2"
  if command -v ccache >/dev/null; then FOURFOLD_CMAKE+=" -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache"; fi
  build "$1" fourfold fourfold_kernels fourfold_engine_library fourfold_sbom
}

# find_cudart MACHINE FOLDER: the CUDA runtime of another machine, from PyPI, of the release that nvcc has; its folder. Nothing
# where the wheel is to have no kernels.
find_cudart() {
  local nvcc release wanted place=$2/cudart
  if [[ ${FOURFOLD_CMAKE:-} == *-DFOURFOLD_CUDA=off* || ${FOURFOLD_CMAKE:-} == *-DFOURFOLD_CUDART=* ]]; then return; fi
  nvcc=$(command -v nvcc /usr/local/cuda/bin/nvcc | head -n 1) || return 0
  release=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
  wanted=$(sed -n 's/^nvidia-cuda-runtime==\([0-9]*\.[0-9]*\)\..*/\1/p' packaging/cudart.txt)
  if [[ $release != "$wanted" ]]; then
    fail 3 "$nvcc is release $release, and packaging/cudart.txt names the runtime of $wanted: correct that file, or name a" \
      "folder with libcudart_static.a and libcudadevrt.a for $1 (FOURFOLD_CMAKE=-DFOURFOLD_CUDART=DIR)"
  fi
  if [[ ! -f $place/libcudart_static.a || packaging/cudart.txt -nt $place/libcudart_static.a ]]; then
    rm -rf "$place"
    mkdir -p "$place"
    "$(dirname "$(find_auditwheel)")/pip" download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --platform "manylinux2014_$1" \
      --require-hashes --requirement packaging/cudart.txt --dest "$place" >&2 ||
      fail 3 "NVIDIA's CUDA runtime for $1 cannot be had from PyPI (packaging/cudart.txt)"
    python3 - "$place" <<'END'
import pathlib, sys, zipfile
place = pathlib.Path(sys.argv[1])
with zipfile.ZipFile(next(place.glob("*.whl"))) as wheel:
    for name in wheel.namelist():
        if name.endswith(("/libcudart_static.a", "/libcudadevrt.a")):
            (place / pathlib.PurePath(name).name).write_bytes(wheel.read(name))
END
  fi
  realpath "$place"
}

# package_wheel [ARCHITECTURE]
package_wheel() {
  local machine preset=package runtime
  case ${1:-} in
    "") machine=$(uname -m) ;;
    x86-64) machine=x86_64 ;;
    aarch64) machine=aarch64 ;;
    *) fail 64 "package wheel --for knows x86-64 and aarch64, not '$1'" ;;
  esac
  if [[ $machine == "$(uname -m)" ]]; then
    set_up build package
  else
    set_up build "for-$1"
    preset=package-$1
    runtime=$(find_cudart "$machine" "build-$preset")
    if [[ -n $runtime ]]; then FOURFOLD_CMAKE="${FOURFOLD_CMAKE:-} -DFOURFOLD_CUDART=$runtime"; fi
  fi
  build_packaged "$preset" ON
  python3 packaging/wheel.py "build-$preset" dist --auditwheel "$(find_auditwheel)"
}

# Its own Python, with the one package that wheels are checked by.
find_auditwheel() {
  local place=build-package/auditwheel-$auditwheel
  if [[ ! -x $place/bin/auditwheel ]]; then
    python3 -m venv --clear "$place" || fail 3 "python3 -m venv failed (Debian: apt-get install python3-venv)"
    "$place/bin/pip" install --quiet --disable-pip-version-check "auditwheel==$auditwheel" ||
      fail 3 "auditwheel $auditwheel cannot be had from PyPI"
  fi
  echo "$place/bin/auditwheel"
}

command_package() {
  local kind=${1:-}
  case $kind in
    wheel | deb | image) ;;
    *) fail 64 "package makes a wheel, a deb or an image, not '$kind'" ;;
  esac
  shift
  case "$kind $*" in
    "wheel --for "*) if [[ $# -ne 2 ]]; then fail 64 "package wheel --for takes one architecture, not '${*:2}'"; fi ;;
    "$kind ") ;;
    *) fail 64 "package takes one word, and wheel --for x86-64 or aarch64; not '$kind $*'" ;;
  esac
  case $kind in
    wheel) package_wheel "${@:2}" ;;
    deb)
      set_up build package deb
      build_packaged package OFF
      python3 packaging/deb.py build-package dist
      ;;
    image)
      set_up build package image
      build_packaged package ON
      packaging/image.sh build-package dist
      ;;
  esac
}
