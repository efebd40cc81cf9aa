# shellcheck shell=bash disable=SC2154
# ./dev gpu: what needs an NVIDIA GPU. Proves every row on silicon against the simulator and the reference, and a long prompt
# against another implementation, then measures the MoE layer and a whole model; all into bench/results/, named after the
# card. Sourced by dev.

command_gpu() {
  if [[ $# -gt 0 ]]; then fail 64 "gpu takes no arguments, not '$1'"; fi
  command -v nvidia-smi >/dev/null || fail 3 "nvidia-smi was not found; this command needs an NVIDIA GPU and its driver"
  local card shape rows scratch
  card=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1 | tr 'A-Z ' 'a-z-' | sed 's/^nvidia-//') ||
    fail 3 "nvidia-smi shows no GPU"
  set_up build
  build default fourfold
  mkdir -p bench/results
  build/fourfold verify --device all --report "bench/results/verify-$card.json"
  build/fourfold verify --device cuda --large --report "bench/results/verify-large-$card.json"
  python3 tools/summarise_verify.py "bench/results/verify-$card.json"
  python3 tools/summarise_verify.py "bench/results/verify-large-$card.json"
  # A prompt of 2,150 tokens through a whole model, against another implementation's numbers (tests/golden/families).
  scratch=$(mktemp -d)
  build/fourfold make-model "$scratch/long" --shape tiny-long --format bf16 --seed 1
  for rows in 0 1024; do
    build/fourfold compare "$scratch/long" tests/golden/families/tiny-long.safetensors --backend cuda --step-rows "$rows"
  done
  rm -r "$scratch"
  for shape in 35b 122b 397b-tp4 397b; do
    build/fourfold bench moe --shape "$shape" --routing all --tokens 1,2,4,8,16,32,64,256,1024,8192 \
      --csv "bench/results/moe-$card-$shape.csv"
  done
  # Reviewed like code before it is committed; the bench below runs by it.
  build/fourfold tune --shape 35b --out "tuned/$card.json" > "bench/results/tune-$card-35b.txt" ||
    echo "gpu: the 35B was not tuned; see above"
  # 25 GB of weights; a smaller card refuses with the numbers, and that is not an error of this command.
  build/fourfold bench model --backend cuda --shape 35b --dense bf16 --users 1,8,64 --context 0,4k --prompt 2048 \
    --csv "bench/results/model-$card-35b-bf16.csv" || echo "gpu: the 35B was not timed; see above"
  python3 tools/result_tables.py "$root"
  echo "gpu: commit bench/results/, tuned/, README.md and docs/performance.md"
}
