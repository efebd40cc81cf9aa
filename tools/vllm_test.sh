#!/usr/bin/env bash
# tools/vllm_test.sh FOLDER LIBRARY: tests/packaging/vllm_test.py with each vLLM that fourfold-vllm was tested with, from PyPI (gigabytes),
# into FOLDER. LIBRARY is libfourfold_kernels.so.0. Ends with 77 where PyPI cannot be reached.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1
library=$(realpath "$2")
python3 -m venv --clear "$folder/python"
pip=("$folder/python/bin/pip" --quiet --disable-pip-version-check install)
# torch brings its CUDA along; the rest is listed whole, so that nothing else is pulled in.
if ! "${pip[@]}" "$(grep '^torch==' tests/packaging/vllm-requirements.txt)" ||
  ! "${pip[@]}" --no-deps --requirement tests/packaging/vllm-requirements.txt; then
  echo "skipped: vLLM's requirements cannot be had from PyPI"
  exit 77
fi
versions=$(PYTHONPATH=python/fourfold-vllm python3 -c 'import fourfold_vllm; print(*fourfold_vllm.TESTED)')
for version in $versions; do
  site=$folder/vllm-$version
  [[ -d $site/vllm ]] || "${pip[@]}" --no-deps --target "$site" "vllm==$version"
  # vLLM's kernels are linked with the driver, which a machine without a GPU does not have: one that answers every call with an error.
  nm -D --undefined-only "$site"/vllm/*.so | awk '$NF ~ /^cu[A-Z][A-Za-z0-9_]*$/ { print "int " $NF "(void) { return 3; }" }' |
    sort -u >"$site/driver.c"
  gcc -shared -fPIC -w -Wl,-soname,libcuda.so.1 -o "$site/libcuda.so.1" "$site/driver.c"
  echo "vLLM $version"
  PYTHONPATH=$site LD_LIBRARY_PATH=$site FOURFOLD_KERNELS_LIBRARY=$library "$folder/python/bin/python" -W ignore tests/packaging/vllm_test.py .
done
