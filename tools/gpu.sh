# shellcheck shell=bash disable=SC2154
# ./dev gpu: what needs an NVIDIA GPU: `fourfold report`, with each part's own file in bench/results/, named after the card,
# and a long prompt, and every family and format, against another implementation. Sourced by dev.

command_gpu() {
  if [[ $# -gt 0 ]]; then fail 64 "gpu takes no arguments, not '$1'"; fi
  command -v nvidia-smi >/dev/null || fail 3 "nvidia-smi was not found; this command needs an NVIDIA GPU and its driver"
  local backends card rows scratch status=0
  card=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1 | tr 'A-Z ' 'a-z-' | sed 's/^nvidia-//') ||
    fail 3 "nvidia-smi shows no GPU"
  set_up build
  build default fourfold
  mkdir -p bench/results
  # The list of what is proved and measured is `fourfold report`'s: each part's own file and the report of all. A model that
  # does not fit is left out with its numbers, and that is not an error of this command. The tuning file is reviewed like code
  # before it is committed.
  build/fourfold report --force --tune-out tuned --results bench/results \
    --out "bench/results/report-$card.json" || status=$?
  # A prompt of 2,150 tokens through a whole model, against another implementation's numbers (tests/golden/families).
  scratch=$(mktemp -d)
  build/fourfold make-model "$scratch/long" --shape tiny-long --format bf16 --seed 1
  for rows in 0 1024; do
    build/fourfold compare "$scratch/long" tests/golden/families/tiny-long.safetensors --backend cuda --step-rows "$rows"
  done
  rm -r "$scratch"
  # Every family and format against another implementation's numbers; on two ranks where there are two cards.
  backends=cuda
  if [[ $(nvidia-smi --list-gpus | wc -l) -ge 2 ]]; then backends=cuda,cuda:2; fi
  python3 tools/compare_families.py build/fourfold bench/results/compare-families.md --backends "$backends" || status=$?
  python3 tools/result_tables.py "$root"
  if [[ $status -ne 0 ]]; then fail "$status" "a part of the report or a comparison missed or failed, see above and bench/results/report-$card.json"; fi
  echo "gpu: commit bench/results/, tuned/, README.md and docs/performance.md"
}
