#!/bin/sh
# Build the images netsense-worker, netsense-testbed and netsense-prometheus: docker/build.sh [worker|testbed|prometheus ...]
# Called by `make images`. BASE_IMAGE is what they start from. No build has a network: wheels are fetched here, by the virtual
# environment's pip, and packages by a container of the image that lacks them. Tags tell what went in: same digest, same content.
set -eu
cd "$(dirname "$0")/.."
. docker/engine.sh
BASE_IMAGE="${BASE_IMAGE:-python:3.11-slim-bookworm}"
PYTHON="${VENV:-.venv}/bin/python"
BUILD=docker/.build
root="$PWD"
WORKER_WHEELS="torch numpy numba pip"
TESTBED_PACKAGES="mininet openvswitch-switch iproute2 iperf3 ethtool iputils-ping net-tools dataset-fashion-mnist"

require_base() {
  docker image inspect "$BASE_IMAGE" >/dev/null 2>&1 || docker pull -q "$BASE_IMAGE" >/dev/null 2>&1 || refuse \
    "$BASE_IMAGE is not here and cannot be pulled: make base-image makes one locally, then make images BASE_IMAGE=netsense-base"
  found="$(docker run --rm --network none --entrypoint python3 "$BASE_IMAGE" -c 'import sys; print("%d.%d" % sys.version_info[:2])')" ||
    refuse "$BASE_IMAGE has no python3: use python:$python-slim-bookworm or netsense-base"
  [ "$found" = "$python" ] || refuse \
    "the wheels are for Python $python, that of ${VENV:-.venv}, and $BASE_IMAGE has $found: make images BASE_IMAGE=python:$python-slim-bookworm"
}

# fetch_wheels FOLDER WHAT...: do so once, until the pins or what is wanted change; wheels of the worker are not fetched again.
fetch_wheels() {
  folder="$BUILD/$1"
  shift
  wanted="$(cat constraints.txt pyproject.toml; echo "$python $*")"
  [ "$(cat "$folder.done" 2>/dev/null)" != "$wanted" ] || return 0
  say "fetching wheels into $folder"
  rm -rf "$folder" && mkdir -p "$folder"
  "$PYTHON" -m pip wheel -q --disable-pip-version-check -c constraints.txt -w "$folder" "$@" >&2 ||
    refuse "pip cannot get the wheels; what it said is above"
  echo "$wanted" >"$folder.done"
}

# fetch_debs FOLDER IMAGE PACKAGE...: fetch what the image lacks of packages and of what they need, once for an image.
fetch_debs() {
  folder="$BUILD/$1" image="$2"
  shift 2
  wanted="$(docker image inspect -f '{{.Id}}' "$image") $*"
  [ "$(cat "$folder.done" 2>/dev/null)" != "$wanted" ] || return 0
  say "fetching packages into $folder"
  rm -rf "$folder" && mkdir -p "$folder"
  docker run --rm --network host --user 0 -e http_proxy -e https_proxy -v "$PWD/$folder:/debs" --entrypoint sh "$image" -c '
    apt-get update -q && apt-get install -qy --no-install-recommends --download-only -o Dir::Cache::Archives=/debs "$@" &&
    rm -rf /debs/partial /debs/lock && chown -R "$(stat -c %u:%g /debs)" /debs' sh "$@" >"$folder.log" 2>&1 || {
    tail -5 "$folder.log" >&2
    refuse "a container of $image cannot fetch $*: is a Debian mirror in reach? (see $folder.log)"
  }
  echo "$wanted" >"$folder.done"
}

# build NAME FROM TAR-ARGUMENTS...: build from what tar packs, unless just that was built before.
build() {
  name="$1" from="$2"
  shift 2
  digest="$({ docker image inspect -f '{{.Id}}' "$from"; context "$@"; } | sha256sum | cut -c1-12)"
  if ! docker image inspect "$name:$digest" >/dev/null 2>&1; then
    say "building $name:$digest"
    context "$@" | docker build --network none --build-arg "BASE_IMAGE=$from" -t "$name:$digest" \
      --label "netsense-testbed.python=$python" --label "netsense-testbed.source=$source" - >"$BUILD/$name.log" 2>&1 || {
      tail -20 "$BUILD/$name.log" >&2
      refuse "$name cannot be built, see $BUILD/$name.log"
    }
  fi
  docker tag "$name:$digest" "$name:latest"
  say "$name:latest is $name:$digest"
}

context() { tar -c --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --exclude=__pycache__ "$@"; }

require_engine
[ -x "$PYTHON" ] || refuse "there is no virtual environment yet, whose pip fetches the wheels: make setup"
set -- $("$PYTHON" -m testbed.containers.identity)
python="$1" source="$2"
require_base

fetch_wheels worker/wheels $WORKER_WHEELS
fetch_debs worker/debs "$BASE_IMAGE" iperf3
fetch_debs worker/tools "$BASE_IMAGE" binutils
build netsense-worker "$BASE_IMAGE" -C "$root/docker/worker" . -C "$root/docker" gather.sh -C "$root/$BUILD/worker" wheels debs tools \
  -C "$root" controller workloads
