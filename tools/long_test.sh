# shellcheck shell=bash disable=SC2154
# ./dev test --long: what takes too long for every change, in parts. Each is run to its end even when one before it failed,
# and recorded in docs/long-test.txt at once, to be committed; a run that was stopped goes on with what has not passed.
# Where there are many cores, several may be run at once: ./dev test --long PART & ./dev test --long OTHER ...
# And ./dev test --sanitize, a part of it. Sourced by dev.

# long_part NAME "what it is" command...: unless it passed with what it reads (tools/long_result.py); one that ends with 77
# was skipped, and its last line says why.
long_part() {
  local name=$1 says=$2 start=$SECONDS status log note= before
  shift 2
  long_parts+=("$name")
  if [[ ${#long_wanted[@]} -gt 0 ]]; then
    [[ " ${long_wanted[*]} " == *" $name "* ]] || return 0
  elif python3 tools/long_result.py --done "$name"; then
    return 0
  fi
  if [[ $long_list == yes ]]; then echo "$name: $says"; return 0; fi
  log=$(mktemp)
  echo "== $name: $says"
  before=$(python3 tools/long_result.py --here)
  # Not left of ||: bash would ignore every failure inside but the last command's.
  set +e
  (set -e; "$@") 2>&1 | tee "$log"
  status=${PIPESTATUS[0]}
  set -e
  note=$(sed -n 's/^  skipped: //p' "$log" | paste -sd ' ')
  note="${note:+skipped: $note; }$(sed -n 's/^  noted: //p' "$log")"
  note=${note%; }
  if [[ $status -eq 77 ]]; then note=$(tail -n 1 "$log"); fi
  rm -f "$log"
  python3 tools/long_result.py --record "$name" "$before" "$status" "$((SECONDS - start))" "$says" "$note"
  [[ $status -eq 0 || $status -eq 77 ]] || long_verdict=failed
}

# tests_of PROGRAM FILTER: their names. Each part of the filter must name some: where a test was renamed, gtest would run none
# and be content.
tests_of() {
  local part parts found
  IFS=: read -ra parts <<<"$2"
  for part in "${parts[@]}"; do
    found=$("$1" --gtest_list_tests --gtest_filter="$part" | awk '/^[^ ]/ { suite = $1 } /^ / { print suite $1 }')
    if [[ -z $found ]]; then echo "${1##*/} has no test '$part'" >&2; return 1; fi
    echo "$found"
  done
}
run_only() {  # run_only PROGRAM FILTER
  tests_of "$@" >/dev/null || return
  "$1" --gtest_filter="$2"
}

# The rooms that have threads, or read what comes from outside; doors has the tests of the library, fuzz the damaged inputs.
serving_rooms=(json schedule sample constrain text fuzz server loadgen engine faults doors)

soak() {  # soak PRESET COUNT
  build "$1" test_faults
  FOURFOLD_SOAK=$2 run_only "$(build_folder "$1")/test_faults" 'Soak*'
}

# sanitize_rooms PRESET ROOM...: the tests of these rooms; with faults also a soak, longer than ./dev test has it.
sanitize_rooms() {
  local preset=$1
  shift
  build "$preset" "${@/#/test_}"
  run_tests "$preset" -R "^($(IFS='|'; echo "$*"))\\."
  if [[ " $* " == *" faults "* ]]; then soak "$preset" 5000; fi
}

command_sanitize() {
  local preset
  case ${1:-} in
    thread) preset=tsan ;;
    address) preset=asan ;;
    *) fail 64 "test --sanitize takes thread or address, not '${1:-}'" ;;
  esac
  shift
  set_up build test
  sanitize_rooms "$preset" "${@:-${serving_rooms[@]}}"
}

whole() {  # whole PRESET
  build "$1" && run_tests "$1"
}

# The other rooms under a sanitizer, slow ones alone; `rest` is what belongs to none of them.
sanitize_groups=("base plan checkpoint" "backend model kernels_cpu" "sim kernels" "cli cli_model doctor")

sanitize_rest() {  # sanitize_rest PRESET
  local rooms="${serving_rooms[*]} ${sanitize_groups[*]}"
  build "$1"
  run_tests "$1" -E "^(${rooms// /|})\\."
}

# A second compiler finds other warnings and other undefined behaviour; headers compiled each time, a missing #include.
clang_build() {
  local compiler
  compiler=$(command -v clang++-19 || echo /usr/lib/llvm-19/bin/clang++)
  if [[ ! -x $compiler ]]; then echo "clang 19 is not installed (apt-get install clang-19)"; return 77; fi
  cmake --preset clang-19 -DCMAKE_CXX_COMPILER="$compiler" -DFOURFOLD_PRECOMPILE=OFF >/dev/null &&
    python3 tools/progress.py ninja build-clang-19 "$jobs" && python3 tools/progress.py ctest build-clang-19 "$jobs"
}

# The other architecture: everything compiled, and what computes run by an emulator. Packages: docs/install.md.
cross_rooms=(base plan json checkpoint text kernels_cpu backend sample schedule constrain events)
cross_x86_64() {
  if [[ $(uname -m) == x86_64 ]]; then echo "this machine is an x86-64"; return 77; fi
  local tool
  for tool in x86_64-linux-gnu-g++ qemu-x86_64; do
    command -v "$tool" >/dev/null || { echo "$tool is not installed (docs/install.md)"; return 77; }
  done
  build cross-x86-64 "${cross_rooms[@]/#/test_}" fourfold_chat
  run_tests cross-x86-64 -R "^($(IFS='|'; echo "${cross_rooms[*]}"))\\."
  qemu-x86_64 -cpu max build-cross-x86-64/fourfold-chat run models/storyteller -p "Once upon a time" --max-tokens 16 --temperature 0
}

many_seeds() {
  build ci fourfold
  build/fourfold verify --device sim --seeds 20 >build/verify-long.txt || { cat build/verify-long.txt; return 1; }
  tail -n 1 build/verify-long.txt
}

# Claude Code, Codex and other large programs, from PyPI (a gigabyte); the dated results are in docs/agents-test.txt.
real_clients() {
  build ci fourfold fourfold_engine_library
  FOURFOLD_LONG=1 python3 tests/clients/run.py --program build/fourfold --folder build/clients --write all
}

# A process to a test: some take many minutes.
every_mutation() {  # every_mutation FILTER
  local tests
  build ci test_kernels
  export FOURFOLD_LONG=1
  tests=$(tests_of build/test_kernels "$1") || return
  echo "$tests" | xargs -P "$jobs" -I{} build/test_kernels --gtest_filter={}
}

long_prompt() {
  build ci test_evaluate
  FOURFOLD_LONG=1 run_only build/test_evaluate 'LongPrompt*'
}

storyteller_fp4() {
  build ci test_engine
  FOURFOLD_LONG=1 run_only build/test_engine 'StorytellerFp4*'
}

families() {
  build ci test_model
  FOURFOLD_LONG=1 run_only build/test_model '*GpuFamilies*:*GpuQuantised*:*SameBits*'
}

# Tests that ./dev test has with half of their shapes, families or formats.
shortened() {
  build ci fourfold fake_nccl test_kernels test_evaluate test_engine test_model test_cli_model
  export FOURFOLD_LONG=1
  run_only build/test_kernels 'GroupedGemm.WideMatrices*'
  run_only build/test_evaluate '*RouterTies*:*QuantisedFamilies*:*FamilyShapes*'
  run_only build/test_model 'GoldenWithFp4Activations.*:*GoldenOnGpu*:GpuSameAnswer.*:StepWays.*:TuneBits.*'
  ctest --test-dir build -R '^nodes\.processes\.GatheredByNccl$' --output-on-failure
  run_only build/test_engine 'Batcher.OnTheSimulatedGpu*:Fp4Answers.*:Fp8Answers.*:GpuAnswers.*:MinTokens.*'
  run_only build/test_cli_model 'CheckpointCommands.ComparePassesOnTheGoldenModels:EveryFamily.*'
}

# The rows of every chip as machine code, against the plan.
machine_code() {
  if [[ -z $(nvcc_release build-machine-code) ]]; then echo "nvcc is not installed"; return 77; fi
  # nvdisasm counts instructions; many toolkits come without it.
  local nvdisasm python=build-machine-code/python
  if ! nvdisasm=$(PATH=$PATH:/usr/local/cuda/bin command -v nvdisasm); then
    nvdisasm=$PWD/$python/nvidia/cu13/bin/nvdisasm
    [[ -x $nvdisasm ]] ||
      python3 -m pip --quiet --disable-pip-version-check install --target "$python" nvidia-cuda-nvdisasm==13.2.51 || return 1
  fi
  cmake --preset cuda -B build-machine-code -DFOURFOLD_TESTS=ON -DFOURFOLD_NVDISASM="$nvdisasm" >/dev/null
  python3 tools/progress.py ninja build-machine-code "$jobs" fourfold_kernels_cuda fourfold_gpu cubin_plan
  ctest --test-dir build-machine-code -R '^kernels\.(cubins|instruction_counts)' --output-on-failure
  echo "  noted: $(nvcc_release build-machine-code)"
}

scenarios() {
  build ci test_engine
  FOURFOLD_SCENARIOS=1000 run_only build/test_engine 'Batcher.RandomScenarios*'
}

# Sources broken in many places, one at a time, in a copy; a line for each is in docs/mutations.txt.
source_mutations() {
  python3 tools/mutate.py --jobs "$jobs"
}

one_line_row() {
  python3 tests/kernels/one_line_row.py . build/one-line-row --jobs "$jobs"
}

# What ./dev package makes here, with the kernels of every chip where nvcc is, as strangers get it: installed and asked where
# there is neither a compiler nor a GPU.
packaged() {  # packaged wheel|deb|image
  ./dev package "$1"
  case $1 in
    wheel) tools/package_test.sh wheel dist/fourfold-*_"$(uname -m)".whl ;;
    deb) tools/package_test.sh deb dist/fourfold_*.deb ;;
    image) tools/package_test.sh image dist/fourfold-image ;;
  esac
}

# The other machine's wheel, in a Debian that an emulator runs.
wheel_x86_64() {
  if [[ $(uname -m) == x86_64 ]]; then echo "this machine is an x86-64: package-wheel is it"; return 77; fi
  ./dev package wheel --for x86-64
  tools/package_test.sh wheel dist/fourfold-*_x86_64.whl
}

# torch.ops.fourfold with torch from PyPI (gigabytes), on the simulated GPU, or on a GPU where there is one.
torch_operators() {
  build ci fourfold_kernels
  python3 -m venv --clear build/torch
  if ! build/torch/bin/pip --quiet install torch==2.15.0; then
    echo "skipped: torch cannot be had from PyPI"
    return 77
  fi
  FOURFOLD_KERNELS_LIBRARY=build/libfourfold_kernels.so.0 build/torch/bin/python tests/packaging/torch_test.py .
}

# fourfold-vllm inside of vLLM (gigabytes), on a pretended GPU.
vllm_plugin() {
  build ci fourfold_kernels
  tools/vllm_test.sh build/vllm build/libfourfold_kernels.so.0
}

all_long_parts() {
  long_part default "default build and tests" whole ci
  local preset group
  for preset in asan tsan; do
    long_part "$preset-serving" "rooms that serve, a soak of 5,000 requests" sanitize_rooms "$preset" "${serving_rooms[@]}"
    for group in "${sanitize_groups[@]}"; do
      # shellcheck disable=SC2086
      long_part "$preset-${group%% *}" "$group" sanitize_rooms "$preset" $group
    done
    long_part "$preset-rest" "what is left" sanitize_rest "$preset"
  done
  long_part clang "clang 19, warnings as errors" clang_build
  long_part cross-x86-64 "compiled for x86-64, what computes run by an emulator" cross_x86_64
  long_part debian-13 "a fresh Debian 13: its g++ and clang, its packages, an answer" tools/debian13.sh docs/debian-13.txt
  long_part package-wheel "the wheel, in a Debian without compilers" packaged wheel
  long_part package-wheel-x86-64 "the x86-64 wheel, cross-built, in an emulated Debian without compilers" wheel_x86_64
  long_part package-deb "the .deb installed, serving and removed in a fresh Debian" packaged deb
  long_part package-image "the image as nobody, its root read-only" packaged image
  long_part machine-code "every row compiled for every chip, against the plan" machine_code
  long_part torch "operators of PyTorch on the simulated GPU" torch_operators
  long_part vllm "the plugin in vLLM's own classes, each tested release" vllm_plugin
  long_part seeds "verify on the simulated GPU, 20 seeds for each row and operation" many_seeds
  long_part families "other families on the simulated GPU, even shapes, second seeds and every quantised reference; 500 random runs" families
  long_part shortened "every shape, family and format of what ./dev test has a half of" shortened
  long_part scenarios "1,000 random scenarios of the engine" scenarios
  long_part mutations-layer "every synchronisation of every row of the MoE layer left out" every_mutation 'Mutation*'
  long_part mutations-step "every synchronisation of every other row left out" every_mutation 'StepMutation*'
  long_part long-prompt "a prompt of 2,150 tokens, whole, and on Hopper's kernels" long_prompt
  long_part storyteller-fp4 "FP4 activations of Storyteller on the simulated GPU beside the CPU, 2,048 tokens" storyteller_fp4
  long_part mutations-source "sources broken on purpose (docs/mutations.txt)" source_mutations
  long_part one-line-row "a made-up row, one line of a list, is seen by every reader" one_line_row
  long_part soak "10,000 requests with cancels" soak ci 10000
  long_part clients "agents, routers and clients (docs/agents-test.txt)" real_clients
}

# command_long_test [--list] [PART...]: those parts, or all that have not passed with what they read.
command_long_test() {
  long_verdict=passed
  long_list=no
  long_parts=()
  if [[ ${1:-} == --list ]]; then long_list=yes; shift; fi
  long_wanted=("$@")
  SECONDS=0
  if [[ $long_list == no ]]; then
    set_up build test
    # Only these parts have tests of the chat page.
    if [[ ${#long_wanted[@]} -eq 0 || " ${long_wanted[*]} " =~ \ (default|clang|[at]san-rest)\  ]]; then
      set_up page || echo "dev: without Chromium the tests of the chat page are SKIPPED"
    fi
  fi
  all_long_parts
  local name
  for name in "${long_wanted[@]}"; do
    [[ " ${long_parts[*]} " == *" $name "* ]] || fail 64 "test --long has no part '$name'; parts: ${long_parts[*]}"
  done
  [[ $long_list == yes ]] || python3 tools/long_result.py --age
  [[ $long_verdict == passed ]]
}
