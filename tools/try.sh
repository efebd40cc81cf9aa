# shellcheck shell=bash disable=SC2154
# ./dev try: from nothing to every kernel row proved, and an answer. Sourced by dev.

# The report is kept as long as the program is the same, so that a second run only shows it.
verify_or_show() {
  local key stored=build/verify.key
  key=$(sha256sum build/fourfold | cut -d ' ' -f 1)
  if [[ -f $stored && -f build/verify.txt && $(<"$stored") == "$key" ]]; then
    echo "The program has not changed since its proof of $(date -r build/verify.txt '+%Y-%m-%d %H:%M'); its result was:"
  else
    rm -f "$stored"
    if ! build/fourfold verify --device sim --seeds 1 --report build/verify.json >build/verify.txt; then
      sed -n '/^what did not pass/,$p' build/verify.txt
      fail 1 "a kernel row did not pass; the lines above name it (table: build/verify.txt, report: build/verify.json)"
    fi
    echo "$key" >"$stored"
  fi
  sed -n '$p' build/verify.txt
  echo "(table: build/verify.txt, report: build/verify.json)"
}

# A model of random numbers answers: checkpoint, tokenizer, chat template, layers and sampling are the real ones.
answer_once() {
  local model=build/random-model question='What fits into 99 KB?'
  rm -rf "$model"
  build/fourfold make-model "$model" --shape tiny --seed 1 >/dev/null
  echo "build/fourfold run $model -p '$question' --no-thinking --max-tokens 48 --seed 1"
  echo
  build/fourfold run "$model" -p "$question" --no-thinking --max-tokens 48 --seed 1
  echo
  echo "Its weights are random numbers, so the words mean nothing yet; with a checkpoint in place of $model they do."
}

# Without a GPU the CUDA kernels would be compiled for nobody: the simulator runs the same source. A build that has
# them keeps them.
leave_out_cuda() {
  if nvidia-smi -L >/dev/null 2>&1; then return; fi
  if ! command -v nvcc >/dev/null && [[ ! -x /usr/local/cuda/bin/nvcc ]]; then return; fi
  if [[ -f build/configured ]] && ! grep -q 'FOURFOLD_CUDA=off' build/configured; then return; fi
  echo "There is nvcc but no NVIDIA GPU: the CUDA kernels are left to ./dev build and ./dev test."
  FOURFOLD_CMAKE="${FOURFOLD_CMAKE:-} -DFOURFOLD_CUDA=off"
}

headline() { printf '\n== %s\n\n' "$*"; }

command_try() {
  if [[ $# -gt 0 ]]; then fail 64 "try takes no arguments, not '$1'"; fi
  SECONDS=0
  set_up build test
  leave_out_cuda
  headline "The point of the project"
  build default plan_preview
  build/plan_preview
  headline "Building the program"
  build default fourfold
  headline "Proving every kernel row on the simulated GPU, against a scalar reference"
  verify_or_show
  headline "An answer"
  answer_once
  headline "Done in $((SECONDS / 60)) min $((SECONDS % 60)) s. What to do next"
  cat <<'END'
  build/fourfold plan --arch sm120                          every row and its bytes
  build/fourfold plan --explain 256x128x128 --arch sm120    the failure of the picture above, byte by byte
  build/fourfold plan --choose --shape 397b --tokens 64 --arch sm120
  build/fourfold run MODEL -p 'Hello'                       an answer of a Qwen3.5 checkpoint, on the CPU
  build/fourfold chat MODEL                                 a conversation with it
  ./dev test                                                all tests
  ./dev gpu                                                 with an NVIDIA GPU: the same proof on silicon, and speed
  docs/architecture.md, docs/kernels.md, docs/simulator.md  how it works
END
}
