#!/usr/bin/env bash
# Packages as strangers get them: package_test.sh wheel FILE | deb FILE | image LAYOUT. The wheel and the .deb are installed in a
# fresh Debian without compilers, in a chroot, a wheel of another machine in a Debian of that machine, which an emulator runs;
# the image is run by crun, or in a chroot where the machine forbids that. Parts of ./dev test --long. Ends with 77 and a line
# "skipped: ..." where a chroot is not to be had.
set -euo pipefail
kind=$1 package=$(realpath "$2")
release=${FOURFOLD_RELEASE:-bookworm} mirror=${FOURFOLD_MIRROR:-http://deb.debian.org/debian}

skip() {
  echo "skipped: $*"
  exit 77
}
wrong() {
  echo "package_test: $*" >&2
  exit 1
}
if [[ $EUID -ne 0 ]]; then skip "a chroot needs root"; fi
if ! why=$(unshare --mount true 2>&1); then skip "no mounts of its own are allowed here ($why)"; fi
if ! command -v mmdebstrap >/dev/null; then skip "mmdebstrap is not installed"; fi

folder=$(mktemp -d "${TMPDIR:-/var/tmp}/fourfold-package.XXXXXX")
trap 'rm -rf --one-file-system "$folder"' EXIT
system=$folder/system
export server=$folder/server.log
TIMEFORMAT='%U %S'

architecture=()
emulated="" oldest=""
make_system() {  # make_system PACKAGES
  mmdebstrap --variant=minbase "${architecture[@]}" --include="$1" "$release" "$system" "$mirror" >"$folder/log" 2>&1 && return
  tail -n 5 "$folder/log"
  if grep -qiE 'could not (resolve|connect)|connection (refused|timed out)|temporary failure' "$folder/log"; then
    skip "$mirror cannot be reached"
  fi
  wrong "a fresh $release could not be made"
}

# find_emulator WHEEL: the Debian that it is for, where that is not this machine's.
find_emulator() {
  local machine
  machine=$(sed -E 's/.*_(x86_64|aarch64)\.whl$/\1/' <<<"$1")
  if [[ $machine == "$(uname -m)" ]]; then return; fi
  case $machine in
    x86_64) architecture=(--architectures=amd64) oldest=qemu64 ;;
    aarch64) architecture=(--architectures=arm64) oldest=cortex-a53 ;;
    *) wrong "$1 does not say what machine it is for" ;;
  esac
  if ! grep -qsx enabled "/proc/sys/fs/binfmt_misc/qemu-$machine" || ! command -v arch-test >/dev/null; then
    skip "this machine does not run programs for $machine (Debian: apt-get install qemu-user-static arch-test)"
  fi
  emulated=" (emulated)"
}

# inside 'commands': with proc and nothing else of this machine. All mounts go with the command. An emulated processor has all
# that the emulator knows, unless QEMU_CPU names one.
inside() {
  # shellcheck disable=SC2016  # for the shell within
  unshare --mount --pid --fork --kill-child bash -c 'mount -t proc proc "$0/proc" && mount --bind /dev "$0/dev" &&
    exec chroot "$0" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 QEMU_CPU="$2" \
      bash -euo pipefail -c "$1"' "$system" "$1" "${QEMU_CPU:-max}"
}

# What a server must do, asked with what python3 has.
ask='
import json, sys, time, urllib.request
base = "http://127.0.0.1:" + sys.argv[1]
def get(path, body=None):
    request = urllib.request.Request(base + path, body and json.dumps(body).encode(), {"Content-Type": "application/json",
                                     "Authorization": "Bearer " + (sys.argv + ["", ""])[2]})
    return urllib.request.urlopen(request, timeout=60).read()
for _ in range(300):
    try:
        get("/health")
        break
    except OSError:
        time.sleep(0.1)
get("/ready")
reply = json.loads(get("/v1/chat/completions", {"messages": [{"role": "user", "content": "What are you?"}], "seed": 1}))
print(reply["choices"][0]["message"]["content"])
assert "demonstration model" in reply["choices"][0]["message"]["content"]
'

test_wheel() {
  find_emulator "$package"
  make_system python3,python3-venv
  inside '! command -v cc && ! command -v g++ && python3 -m venv /python'
  cp "$package" "$system/tmp/"
  SECONDS=0
  { time inside '/python/bin/pip --quiet install --no-index /tmp/fourfold-*.whl && /python/bin/fourfold run -p hello --seed 1' 2>&3 |
    tee "$folder/answer"; } 3>&2 2>"$folder/times"
  local took=$SECONDS counted
  grep -q Storyteller "$folder/answer" || wrong "that is not Storyteller's answer"
  # What an emulator takes by the clock is its machine's other work more than ours.
  counted=$took
  if [[ -n $emulated ]]; then
    counted=$(awk '{ print int($1 + $2 + 1) }' "$folder/times")
    emulated=", $counted s of CPU time (emulated)"
  fi
  if [[ $counted -ge 60 ]]; then wrong "installing it and its answer took $counted s; 60 are allowed"; fi
  inside '/python/bin/python -c "import fourfold; print(fourfold.__version__, fourfold.LLM().chat(\"What are you?\", seed=1).text)"'
  if [[ -n $emulated ]]; then  # the oldest processor of the kind: none of the instructions that are looked for
    QEMU_CPU=$oldest inside '/python/bin/fourfold --version && /python/bin/fourfold run -p hello --seed 1 --max-tokens 12' | tee "$folder/oldest"
    grep -q Storyteller "$folder/oldest" || wrong "that is not Storyteller's answer"
  fi
  inside '/python/bin/pip uninstall --quiet --yes fourfold && [[ ! -e /python/bin/fourfold && ! -e /python/share/fourfold/models/storyteller/config.json ]]'
  echo "package_test: the wheel was installed and had answered after $took s$emulated"
}

test_deb() {
  make_system python3
  cp "$package" "$system/tmp/fourfold.deb"
  cp /etc/resolv.conf "$system/etc/resolv.conf"
  inside 'apt-get update && apt-get install -y --no-install-recommends /tmp/fourfold.deb' >"$folder/log" 2>&1 || { tail -n 20 "$folder/log"; exit 1; }
  # shellcheck disable=SC2016  # for the shell within
  inside 'getent passwd fourfold; fourfold --version; python3 -c "import fourfold; print(fourfold.LLM().model)"
    ! command -v g++
    for file in /etc/fourfold/serve.toml /usr/share/man/man1/fourfold.1.gz /usr/share/bash-completion/completions/fourfold \
      /usr/share/zsh/vendor-completions/_fourfold /usr/share/fish/vendor_completions.d/fourfold.fish \
      /usr/include/fourfold/engine.h /usr/include/fourfold/fourfold.h /usr/include/fourfold/fourfold_kernels.h; do
      if [[ ! -s $file ]]; then echo "the package has no $file"; exit 1; fi
    done'
  # systemd does not run in a chroot: the unit's own line, as its user, with the folders it would make.
  local start
  start=$(sed -n 's/^ExecStart=//p' "$system/lib/systemd/system/fourfold.service")
  echo "$ask" >"$system/tmp/ask.py"
  sed -i 's/^port = .*/port = 18437/' "$system/etc/fourfold/serve.toml"
  inside "mkdir -p /var/lib/fourfold && chown fourfold: /var/lib/fourfold
    setpriv --reuid fourfold --regid fourfold --clear-groups --no-new-privs env HOME=/var/lib/fourfold $start >/tmp/log 2>&1 & server=\$!
    python3 /tmp/ask.py 18437 && fourfold health http://127.0.0.1:18437 && kill \$server && wait \$server || { cat /tmp/log; exit 1; }"
  inside 'apt-get purge -y fourfold' >"$folder/log" 2>&1 || { tail -n 20 "$folder/log"; exit 1; }
  inside '[[ ! -e /usr/bin/fourfold && ! -e /etc/fourfold/serve.toml && ! -e /usr/share/fourfold/models && ! -e /var/lib/fourfold ]]'
  if command -v systemd-analyze >/dev/null; then
    systemd-analyze security --offline=yes packaging/fourfold.service | tail -n 1
  fi
  echo "package_test: the package was installed, served, and was removed without a trace"
}

test_image() {
  umoci unpack --image "$package:latest" "$folder/bundle" >/dev/null 2>&1
  local words
  words=$(python3 -c 'import json, sys; p = json.load(open(sys.argv[1]))["process"]; u = p["user"]; print(u["uid"], u["gid"], *p["args"])' \
    "$folder/bundle/config.json")
  [[ $words == "65534 65534 /usr/bin/fourfold serve" ]] || wrong "the image runs '$words'"
  system=$folder/bundle/rootfs
  # A root that cannot be written, as nobody, with nothing of this machine; its network is this shell's namespace's own.
  # shellcheck disable=SC2016
  unshare --mount --net --pid --fork --kill-child bash -c 'ip link set lo up 2>/dev/null || ifconfig lo up 2>/dev/null || true
    mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && mount -t proc proc "$0/proc" || exit 1
    chroot --userspec=65534:65534 "$0" /usr/bin/fourfold serve --port 18437 >"$2" 2>&1 & server=$!
    python3 -c "$1" 18437 && chroot --userspec=65534:65534 "$0" /usr/bin/fourfold health http://127.0.0.1:18437 &&
      kill $server && wait $server' "$system" "$ask" "$server" || { cat "$server"; wrong "the image does not serve"; }
  if ! command -v crun >/dev/null; then
    echo "  skipped: crun is not installed; the image was run in a chroot with a root that cannot be written"
  elif run_by_crun; then
    echo "package_test: crun ran it with its root read-only"
  else
    echo "  skipped: crun may not run containers here ($(tail -n 1 "$folder/crun.log")); it was run in a chroot, its root read-only"
  fi
  echo "package_test: the image serves as nobody"
}

run_by_crun() {
  python3 - "$folder/bundle/config.json" <<'END'
import json, sys
config = json.load(open(sys.argv[1]))
config["root"]["readonly"] = True
config["process"]["terminal"] = False
config["process"]["args"] = ["/usr/bin/fourfold", "run", "-p", "What are you?", "--seed", "1"]
json.dump(config, open(sys.argv[1], "w"))
END
  crun --cgroup-manager=disabled --root "$folder/crun" run --bundle "$folder/bundle" "fourfold-test-$$" >"$folder/crun.log" 2>&1 </dev/null && grep -q "demonstration model" "$folder/crun.log"
}

case $kind in
  wheel | deb | image) "test_$kind" ;;
  *) wrong "there is no test of a '$kind'" ;;
esac
