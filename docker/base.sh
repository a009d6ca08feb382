#!/bin/sh
# Make the base image netsense-base from this machine's own Debian or Ubuntu release, where no registry can be reached.
# Called by `make base-image`; needs root for debootstrap. SUITE and MIRROR are debootstrap's, which knows defaults.
# The same packages give the same bytes, whenever and wherever that is done: tags of the images begin with them.
set -eu
cd "$(dirname "$0")"
. ./engine.sh
require_engine

[ "$(id -u)" = 0 ] || refuse "debootstrap needs root: run sudo make base-image"
command -v debootstrap >/dev/null || refuse "there is no debootstrap: apt-get install debootstrap"
SUITE="${SUITE:-$(. /etc/os-release && echo "${VERSION_CODENAME:-}")}"
[ -n "$SUITE" ] || refuse "this system does not tell its release: name one, e.g. make base-image SUITE=bookworm"

root="$(mktemp -d)"
trap 'rm -rf --one-file-system "$root"' EXIT
say "installing $SUITE into netsense-base (a minute)"
log="$root.log"
SOURCE_DATE_EPOCH=0 debootstrap --variant=minbase --include=python3 "$SUITE" "$root" ${MIRROR:-} >"$log" 2>&1 || {
  tail -5 "$log" >&2
  refuse "debootstrap failed, see $log; if its mirror cannot be reached, name one: make base-image MIRROR=..."
}
rm "$log"
cd "$root"
rm -rf var/cache/apt/* var/cache/ldconfig/* var/cache/debconf/*-old var/lib/dpkg/*-old var/lib/apt/lists/* etc/hostname etc/resolv.conf
find var/log -type f -delete
find . -name __pycache__ -prune -exec rm -rf {} + # netsense-system has all Python compiled
tar -c --sort=name --mtime=@0 --numeric-owner . | docker import --change 'CMD ["/bin/sh"]' - netsense-base >/dev/null
say "netsense-base is made: make images BASE_IMAGE=netsense-base"
