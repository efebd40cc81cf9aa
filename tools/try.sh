# shellcheck shell=bash disable=SC2154
# ./dev try: from nothing to an answer and the chat page, then, for whoever wants it, the plan and every kernel row proved on
# the simulated GPU. Sourced by dev.

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

# The model that comes with the program tells a story.
answer_once() {
  local question='Write a short story about an old sailor.'
  echo "$program run -p '$question' --seed 1"
  echo
  "$program" run -p "$question" --seed 1
}

# One answer through the API, as any client gets it: python3 is there, curl may not be.
ask_server() {  # ask_server ADDRESS
  python3 - "$1" <<'END'
import json, sys, urllib.request
body = {"messages": [{"role": "user", "content": "Tell me a story about a fox."}], "max_completion_tokens": 80, "seed": 1,
        "stream": True}
request = urllib.request.Request(sys.argv[1] + "v1/chat/completions", json.dumps(body).encode(),
                                 {"Content-Type": "application/json"})
# Whatever proxy is set, it is not for this machine.
with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=120) as answer:
    for line in answer:
        if line.startswith(b"data: {"):
            for choice in json.loads(line[6:])["choices"]:
                print(choice["delta"].get("content") or "", end="", flush=True)
print()
END
}

# At a terminal the server stays until Ctrl-C; elsewhere one answer shows that it works.
chat_page() {
  local log=build/serve.log port=8000 address='' tries
  # Where nobody looks at the page, or somebody has that port, any free one will do.
  if [[ ! -t 0 || ! -t 1 ]] || (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then port=0; fi
  mkdir -p build
  : >"$log"  # read below, perhaps before the server has been started
  "$program" serve --port "$port" --grace 1 >"$log" 2>&1 &
  server=$!
  trap 'kill "$server" 2>/dev/null || true' EXIT INT TERM
  for ((tries = 0; tries < 600; ++tries)); do
    address=$(sed -n 's/^  chat page *//p' "$log")
    if [[ -n $address ]] || ! kill -0 "$server" 2>/dev/null; then break; fi
    sleep 0.1
  done
  if [[ -z $address ]]; then
    cat "$log"
    fail 1 "the server did not start (log: $log)"
  fi
  cat "$log"
  echo
  ask_server "$address" || { kill -0 "$server" 2>/dev/null && fail 1 "the server did not answer (log: $log)"; fail 130 "stopped"; }
  echo
  if [[ -t 0 && -t 1 ]]; then
    echo "Click here, or open it in a browser:  $address"
    echo "Ctrl-C ends the server."
    trap 'kill "$server" 2>/dev/null || true' INT  # of the server alone: the proof may follow
    wait "$server" || true
  else
    kill "$server"
    wait "$server" || true
    echo "Nobody is at a terminal, so the server has ended. To keep one:  $program serve"
    echo "Then open in a browser what it prints behind \"chat page\"."
  fi
  trap - EXIT INT TERM
}

# Without a GPU the CUDA kernels would be compiled for nobody: the simulator runs the same source. A build that has
# them, or that ./dev test made without them, stays as it is.
leave_out_cuda() {
  if [[ ${keep_chips:-no} == yes ]]; then return; fi  # it was asked before
  if nvidia-smi -L >/dev/null 2>&1; then return; fi
  if ! command -v nvcc >/dev/null && [[ ! -x /usr/local/cuda/bin/nvcc ]]; then return; fi
  keep_chips=yes
  if [[ -f build/configured ]] && ! grep -q 'FOURFOLD_CUDA=off' build/configured; then return; fi
  echo "There is nvcc but no NVIDIA GPU: the CUDA kernels are left to ./dev build and ./dev test."
  FOURFOLD_CMAKE="${FOURFOLD_CMAKE:-} -DFOURFOLD_CUDA=off"
}

headline() { printf '\n== %s\n\n' "$*"; }

# The newest wheel of dist/ for this machine, or nothing.
built_wheel() {
  local wheel newest=''
  for wheel in dist/fourfold-*_"$(uname -m)".whl; do
    if [[ -f $wheel && (-z $newest || $wheel -nt $newest) ]]; then newest=$wheel; fi
  done
  echo "$newest"
}

# Sets `program` to the one in a wheel: unpacked and not installed, so nothing outside build/ changes.
unpack_wheel() {  # unpack_wheel FILE
  rm -rf build/wheel
  python3 -m zipfile -e "$1" build/wheel
  mv build/wheel/fourfold-*.data/scripts build/wheel/bin
  mv build/wheel/fourfold-*.data/data/share build/wheel/share
  program=build/wheel/bin/fourfold
  chmod +x "$program"
}

# Sets `program` to one that answers: one that is there (FOURFOLD_PROGRAM, this tree's build, or on the PATH: a wheel's, a
# package's), one in a wheel of dist/, else fourfold-chat, which is little more than half of the whole program to build.
find_or_build_program() {
  local wheel
  if [[ -n ${FOURFOLD_PROGRAM:-} ]]; then
    program=$FOURFOLD_PROGRAM
  elif [[ -x build/fourfold ]]; then
    leave_out_cuda
    build default fourfold
    program=build/fourfold
  elif program=$(command -v fourfold); then
    echo "There is $program already ($("$program" --version)); ./dev build makes one of this tree."
  elif wheel=$(built_wheel) && [[ -n $wheel ]] && command -v python3 >/dev/null; then
    unpack_wheel "$wheel"
    echo "There is $wheel already ($("$program" --version)), unpacked into build/wheel; ./dev build makes one of this tree."
  else
    set_up build
    leave_out_cuda
    headline "Building what answers: run, chat and serve on the CPU"
    build default fourfold_chat
    program=build/fourfold-chat
  fi
}

prove() {
  set_up build
  leave_out_cuda
  headline "The point of the project"
  build default plan_preview
  build/plan_preview
  headline "Building the rest of the program"
  build default fourfold
  headline "Proving every kernel row on the simulated GPU, against a scalar reference"
  verify_or_show
  headline "What to do next"
  cat <<'END'
  build/fourfold plan --arch sm120                          every row and its bytes
  build/fourfold plan --explain 256x128x128 --arch sm120    the failure of the picture above, byte by byte
  build/fourfold plan --choose --shape 397b --tokens 64 --arch sm120
  ./dev test                                                all tests
  ./dev gpu                                                 with an NVIDIA GPU: the same proof on silicon, and speed
  docs/architecture.md, docs/kernels.md, docs/simulator.md  how it works
END
}

# At a terminal a question; elsewhere the line that does it.
offer_proof() {
  local answer=''
  headline "The proof: every kernel row on a simulated GPU, against a scalar reference"
  if [[ -t 0 && -t 1 ]]; then
    read -r -p "Build the rest of the program and run it now? Some minutes. [y/N] " answer || true
    if [[ $answer == [yY]* ]]; then
      prove
      return
    fi
  fi
  echo "./dev try --proof builds the rest of the program, shows the plan and runs it: some minutes on two cores."
}

command_try() {
  if [[ ${1:-} == --proof && $# -eq 1 ]]; then
    prove
    return
  elif [[ $# -gt 0 ]]; then
    fail 64 "try takes --proof or nothing, not '$*'"
  fi
  SECONDS=0
  find_or_build_program
  headline "An answer, from the small model that comes with the program"
  answer_once
  headline "$((SECONDS / 60)) min $((SECONDS % 60)) s so far. What to do next"
  cat <<END
  $program chat           a conversation with the model that comes with the program
  $program chat MODEL     with a Qwen3.5 checkpoint, on the CPU
  $program serve MODEL    a server for many, with a chat page (docs/serving.md)
  ./dev build                     the whole program, build/fourfold: GPUs, planner, doctor, benches
END
  headline "The chat page: $program serve"
  chat_page
  offer_proof
}
