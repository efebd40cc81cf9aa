#!/usr/bin/env bash
# An OCI image of a portable build, without a hub: image.sh BUILD OUTPUT. The system is libc and the certificates, from Debian's
# packages; then the program and Storyteller. OUTPUT/fourfold-image is an OCI layout, tag latest. Needs root, mmdebstrap, umoci.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$1 layout=$2/fourfold-image
release=bookworm mirror=${FOURFOLD_MIRROR:-http://deb.debian.org/debian}
if [[ $EUID -ne 0 ]]; then
  echo "package: an image's files belong to root, so this must be root" >&2
  exit 3
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf "$layout"
mkdir -p "$2"
umoci init --layout "$layout"
umoci new --image "$layout:latest"
umoci unpack --image "$layout:latest" "$work/bundle" >/dev/null 2>&1
system=$work/bundle/rootfs

# Nothing is configured, so nothing but files is needed of the packages.
mmdebstrap --mode=root --variant=extract --include=libc6,base-files,ca-certificates "$release" "$work/system.tar" "$mirror" \
  >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; exit 1; }
tar --extract --file "$work/system.tar" --directory "$system" --exclude './dev/*' --exclude './var/lib/dpkg' \
  --exclude './usr/share/doc' --exclude './usr/share/man' --exclude './usr/share/locale' --exclude './usr/*/perl*'
cat "$system"/usr/share/ca-certificates/mozilla/*.crt >"$system/etc/ssl/certs/ca-certificates.crt"
echo 'root:x:0:0:root:/root:/usr/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin' >"$system/etc/passwd"
echo 'root:x:0:
nogroup:x:65534:' >"$system/etc/group"

python3 - "$here" "$build" "$work/prefix" <<'END'
import pathlib, sys
sys.path.insert(0, sys.argv[1])
import common
common.stage(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
END
install -D "$work/prefix/bin/fourfold" "$system/usr/bin/fourfold"
mkdir -p "$system/usr/share/fourfold" "$system/usr/share/doc" "$system/models"
chown 65534:65534 "$system/models"  # models that are fetched; a fresh volume has its owner
cp -r "$work/prefix/share/doc/fourfold" "$system/usr/share/doc/"
cp -r "$work/prefix/share/fourfold/models" "$work/prefix/share/fourfold/tuned" "$system/usr/share/fourfold/"

umoci repack --image "$layout:latest" "$work/bundle" >/dev/null
umoci config --image "$layout:latest" --config.user 65534:65534 --config.workingdir / \
  --config.entrypoint /usr/bin/fourfold --config.cmd serve --config.exposedports 8000/tcp \
  --config.env PATH=/usr/bin --config.env HOME=/models --config.env HF_HOME=/models --config.volume /models \
  --config.label org.opencontainers.image.title=fourfold --config.label org.opencontainers.image.licenses=Apache-2.0
umoci gc --layout "$layout"
echo "$layout: $(du -sm "$layout" | cut -f 1) MB, an OCI layout with the tag latest"
