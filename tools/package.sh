# shellcheck shell=bash disable=SC2154
# ./dev package wheel|deb|image: what users install, into dist/. All from one build (preset package, build-package/), linked
# for the wheel and the image so that glibc is all they need, for the .deb with this distribution's libraries. With nvcc it has
# the kernels of every chip; FOURFOLD_CMAKE=-DFOURFOLD_CUDA=off leaves them out. nvcc goes through ccache where there is one.
# Sourced by dev.

auditwheel=6.8.2

# build_packaged ON|OFF: the program, both libraries and the list of what is inside, portable or not.
build_packaged() {
  set_up build package
  FOURFOLD_CMAKE="${FOURFOLD_CMAKE:-} -DFOURFOLD_PORTABLE=$1"
  if command -v ccache >/dev/null; then FOURFOLD_CMAKE+=" -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache"; fi
  build package fourfold fourfold_kernels fourfold_engine_library fourfold_sbom
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
  if [[ $# -gt 1 ]]; then fail 64 "package takes one word, not '$*'"; fi
  case $kind in
    wheel)
      build_packaged ON
      python3 packaging/wheel.py build-package dist --auditwheel "$(find_auditwheel)"
      ;;
    deb)
      set_up deb
      build_packaged OFF
      python3 packaging/deb.py build-package dist
      ;;
    image)
      set_up image
      build_packaged ON
      packaging/image.sh build-package dist
      ;;
  esac
}
