# shellcheck shell=bash disable=SC2154
# ./dev test --long: what takes too long for every change. Each step is run to its end even when one fails; the verdict is
# written to docs/long-test.txt, to be committed. And ./dev test --sanitize, a part of it. Sourced by dev.

long_step() {  # long_step NAME command...; one that ends with 77 was skipped, and its last line says why
  local name=$1 start=$SECONDS status=0 log
  shift
  log=$(mktemp)
  echo "== $name"
  ("$@") 2>&1 | tee "$log" || status=$?
  local took="$(((SECONDS - start) / 60)) min $(((SECONDS - start) % 60)) s"
  if [[ $status -eq 0 ]]; then
    long_lines+=("  passed  $name ($took)")
  elif [[ $status -eq 77 ]]; then
    long_lines+=("  skipped $name: $(tail -n 1 "$log")")
  else
    long_lines+=("  FAILED  $name ($took, status $status)")
    long_verdict=failed
  fi
  rm -f "$log"
}

sanitized() {  # sanitized PRESET
  build "$1" && run_tests "$1"
}

# The rooms that have threads, or read what comes from outside; doors has the tests of the library, fuzz the damaged inputs.
serving_rooms=(json schedule sample constrain text fuzz server loadgen engine faults doors)

soak() {  # soak PRESET COUNT
  FOURFOLD_SOAK=$2 "$(build_folder "$1")/test_faults" --gtest_filter='Soak*'
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

# A second compiler finds other warnings and other undefined behaviour; headers compiled each time, a missing #include.
clang_build() {
  local compiler
  compiler=$(command -v clang++-19 || echo /usr/lib/llvm-19/bin/clang++)
  cmake --preset cpu -B build-clang -DFOURFOLD_WERROR=ON -DFOURFOLD_TESTS=ON -DCMAKE_CXX_COMPILER="$compiler" -DFOURFOLD_PRECOMPILE=OFF >/dev/null &&
    python3 tools/progress.py ninja build-clang "$jobs" && python3 tools/progress.py ctest build-clang "$jobs"
}

many_seeds() {
  build/fourfold verify --device sim --seeds 20 >build/verify-long.txt || { cat build/verify-long.txt; return 1; }
  tail -n 1 build/verify-long.txt
}

# Claude Code, Codex and other large programs, from PyPI (a gigabyte); the dated results are in docs/agents-test.txt.
real_clients() {
  python3 tests/clients/run.py --program build/fourfold --folder build/clients --write all
}

command_long_test() {
  long_verdict=passed
  long_lines=()
  SECONDS=0
  set_up build test
  set_up page || long_lines+=("  skipped the chat page: no Chromium (apt-get install chromium chromium-driver)")
  long_step "default build and tests" sanitized ci
  long_step "address and undefined-behaviour sanitizers" sanitized asan
  long_step "thread sanitizer" sanitized tsan
  long_step "soak under the address sanitizer" soak asan 5000
  long_step "soak under the thread sanitizer" soak tsan 5000
  if command -v clang++-19 >/dev/null || [[ -x /usr/lib/llvm-19/bin/clang++ ]]; then
    long_step "clang 19, warnings as errors" clang_build
  else
    long_lines+=("  skipped clang 19: not installed (apt-get install clang-19)")
  fi
  long_step "a fresh Debian 13: its g++, its packages, an answer" tools/debian13.sh docs/debian-13.txt
  long_step "verify, 20 seeds for each row and operation" many_seeds
  long_step "1,000 random scenarios of the engine" env FOURFOLD_SCENARIOS=1000 build/test_engine \
    --gtest_filter='Batcher.RandomScenarios*'
  long_step "every mutation" env FOURFOLD_LONG=1 build/test_kernels --gtest_filter='*Mutation*'
  long_step "soak, 10,000 requests with cancels" soak ci 10000
  long_step "agents, routers and clients (docs/agents-test.txt)" real_clients
  {
    echo "date: $(date +%F)"
    echo "verdict: $long_verdict"
    echo "commit: $(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
    echo "machine: $(uname -m), $(nproc) cores, $(c++ --version | head -n 1)"
    echo "took: $((SECONDS / 60)) min"
    echo "command: ./dev test --long"
    echo
    printf '%s\n' "${long_lines[@]}"
  } >docs/long-test.txt
  cat docs/long-test.txt
  [[ $long_verdict == passed ]]
}
