# shellcheck shell=bash disable=SC2154
# ./dev gpu: what needs an NVIDIA GPU. Proves every row on silicon against the simulator and the reference, then measures
# the MoE layer; both into bench/results/, named after the card. Sourced by dev.

command_gpu() {
  if [[ $# -gt 0 ]]; then fail 64 "gpu takes no arguments, not '$1'"; fi
  command -v nvidia-smi >/dev/null || fail 3 "nvidia-smi was not found; this command needs an NVIDIA GPU and its driver"
  local card shape
  card=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1 | tr 'A-Z ' 'a-z-' | sed 's/^nvidia-//') ||
    fail 3 "nvidia-smi shows no GPU"
  set_up build
  build default fourfold
  mkdir -p bench/results
  build/fourfold verify --device all --report "bench/results/verify-$card.json"
  for shape in 35b 122b 397b-tp4 397b; do
    build/fourfold bench moe --shape "$shape" --routing all --tokens 1,2,4,8,16,32,64,256,1024,8192 \
      --csv "bench/results/moe-$card-$shape.csv"
  done
  python3 tools/readme_table.py "$root"
  echo "gpu: commit bench/results/ and README.md"
}
