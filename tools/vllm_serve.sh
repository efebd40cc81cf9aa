#!/usr/bin/env bash
# fourfold serve and vLLM's own server beside each other on one GPU: the same checkpoint, the same load (fourfold bench serve), by turns.
#
#   tools/vllm_serve.sh PROGRAM MODEL OUT [SECONDS]
#
# MODEL is a folder that both read (fourfold make-model FOLDER --shape 35b makes one). PYTHON (python3) has vLLM, VLLM_ARGUMENTS are
# added to its command. Both servers stay up and hold two fifths of the memory each; one is idle while the other is measured. SECONDS (420) is how
# long all of it may take. Leaves OUT/serve-*.csv, OUT/vllm.log, OUT/fourfold.log.
set -uo pipefail
if [[ $# -lt 3 ]]; then sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 64; fi
program=$1 model=$2 out=$3 limit=${4:-420}
python=${PYTHON:-python3}
mkdir -p "$out"
SECONDS=0

ready() {  # ready NAME PORT PROCESS
  until "$python" -c "import urllib.request as u; u.urlopen('http://127.0.0.1:$2/health', timeout=2)" 2>/dev/null; do
    if ! kill -0 "$3" 2>/dev/null; then echo "$1 did not start:"; tail -n 20 "$out/$1.log"; exit 1; fi
    if [[ $SECONDS -gt $limit ]]; then echo "$1 was not ready after $limit s:"; tail -n 20 "$out/$1.log"; exit 1; fi
    sleep 1
  done
  echo "$1 is ready after $SECONDS s"
}
# Drafts are switched off: of made-up weights none is accepted, and vLLM drafts only when told to.
"$program" serve "$model" --backend cuda --served-model-name m --port 8011 --max-context 8192 --max-sequences 64 --memory-fraction 0.4 \
  --mtp 0 >"$out/fourfold.log" 2>&1 &
ours=$! theirs=
trap 'kill $ours $theirs 2>/dev/null; wait' EXIT
ready fourfold 8011 "$ours"

# After ours: vLLM does not start while another process takes memory. Its own limits would be a cache for one request of 262,144
# tokens, and 1,024 requests.
# shellcheck disable=SC2086
"$python" -m vllm.entrypoints.openai.api_server --model "$model" --served-model-name m --host 127.0.0.1 --port 8012 \
  --max-model-len 8192 --max-num-seqs 64 --gpu-memory-utilization 0.4 --language-model-only ${VLLM_ARGUMENTS:-} >"$out/vllm.log" 2>&1 &
theirs=$!
ready vllm 8012 "$theirs"

measure() {  # measure NAME PORT TURN
  echo "== $1, turn $3, at $SECONDS s"
  "$program" bench serve "http://127.0.0.1:$2" --api completions --users 1,4,16,64 --context 512 --output 128 --prompts random --rounds 2 \
    --warmup 2 --label "$1" --time-limit "$((limit - SECONDS))" --csv "$out/serve-$1-$3.csv"
}
for turn in 1 2; do
  measure fourfold 8011 "$turn"
  measure vllm 8012 "$turn"
done
