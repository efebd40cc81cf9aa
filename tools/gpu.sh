# shellcheck shell=bash disable=SC2154
# ./dev gpu: what needs an NVIDIA GPU: `fourfold report`, with each part's own file in bench/results/, named after the card,
# and a long prompt, and every family and format, against another implementation. ./dev gpu racecheck and ./dev gpu small-sm
# write a file each. Sourced by dev.

command_gpu() {
  case ${1:-} in
    "" | racecheck | small-sm) ;;
    *) fail 64 "gpu knows racecheck [KERNEL...] and small-sm only, not '$1'" ;;
  esac
  command -v nvidia-smi >/dev/null || fail 3 "nvidia-smi was not found; this command needs an NVIDIA GPU and its driver"
  local card commit
  card=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1 | tr 'A-Z ' 'a-z-' | sed 's/^nvidia-//') ||
    fail 3 "nvidia-smi shows no GPU"
  set_up build
  mkdir -p bench/results
  # Before a result is written: that would be a change.
  commit=${FOURFOLD_COMMIT:-$(git describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)}
  case ${1:-} in
    racecheck) shift; gpu_racecheck "$@" ;;
    small-sm) gpu_small_sm ;;
    *) gpu_report ;;
  esac
}

machine_here() { nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | sed -n '1s/, / (driver /p' | sed "s/$/), $(date -u +%F)/"; }

# compute-sanitizer's racecheck over the proofs of verify --quick, kernel by kernel: all of them in one call are beyond its
# memory. In a build that it can follow (bench/probes/racecheck_mbarrier.cu). What a kernel said before stays, with its commit,
# until it is asked again.
gpu_racecheck() {
  command -v compute-sanitizer >/dev/null || fail 3 "compute-sanitizer was not found; it is part of the CUDA toolkit"
  local program=build-racecheck/fourfold result=bench/results/racecheck-$card.txt kernels=("$@") kernel log new said status=0
  cmake --preset cuda -B build-racecheck -DFOURFOLD_RACECHECK=ON -DFOURFOLD_TESTS=OFF >/dev/null
  python3 tools/progress.py ninja build-racecheck "$jobs" fourfold
  if [[ ${#kernels[@]} -eq 0 ]]; then
    said=$("$program" verify --device cuda --quick --json |
      python3 -c 'import json, sys; print(*sorted({row["kernel"] for row in json.load(sys.stdin)["rows"]}), sep="\n")') ||
      fail 1 "verify --device cuda --quick --json did not say which kernels there are"
    mapfile -t kernels <<<"$said"
  fi
  new=$(mktemp)
  echo "# compute-sanitizer --tool racecheck fourfold verify --device cuda --quick --rows KERNEL, $(machine_here)" >"$new"
  if [[ -e $result ]]; then sed 1d "$result" >>"$new"; fi
  log=$(mktemp)
  for kernel in "${kernels[@]}"; do
    timeout 300 compute-sanitizer --tool racecheck "$program" verify --device cuda --quick --rows "$kernel" >"$log" 2>&1 || status=1
    said=$(sed -n 's/^=* *\(RACECHECK SUMMARY.*\)/\1/p' "$log" | tail -n 1)
    sed -i "/^$kernel /d" "$new"
    echo "$kernel  ${said:-no summary within 300 s: $(tail -n 1 "$log")}; $(grep -E 'proofs' "$log" | tail -n 1)  $commit" | tee -a "$new"
    cp "$new" "$result"
    [[ $said == *" 0 hazards"* ]] || status=1
  done
  rm "$log" "$new"
  [[ $status -eq 0 ]] || fail 1 "a kernel has hazards, or could not be followed, see $result"
}

# With every launch padded until an SM holds no more than one of SM120's would, and without, by turns: two of each. What plan
# expects of it (src/plan/small_sm.h) is held to this file.
gpu_small_sm() {
  local result=bench/results/small-sm-$card.txt way new settings
  build default fourfold
  new=$(mktemp)
  {
    echo "# An SM as small as SM120's: FOURFOLD_EMULATE_SM_BYTES=102400 (\"emulated\") and without, by turns, $(machine_here), $commit: ./dev gpu small-sm"
    for way in "as it is" emulated "as it is" emulated; do
      settings=()
      if [[ $way == emulated ]]; then settings=(FOURFOLD_EMULATE_SM_BYTES=102400); fi
      printf '\n== %s\n' "$way"
      env "${settings[@]}" build/fourfold bench moe --shape 35b --tokens 1,2,4,16,64
      env "${settings[@]}" build/fourfold bench model --backend cuda --shape 35b --dense bf16 --users 1,8,64 --context 0,4k,32k
    done
  } | tee "$new"
  cp "$new" "$result"
  rm "$new"
}

gpu_report() {
  local backends rows scratch status=0
  build default fourfold
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
