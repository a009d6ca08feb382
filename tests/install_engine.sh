#!/bin/sh
# Install what tests of containers need, where that can be done: a Docker engine to start privately if none runs, debootstrap for a
# base image, docker-compose. Without them those tests are skipped and say so. Called by make; never fails.
set -eu
say() { printf '%s\n' "engine: $*" >&2; }

missing=""
{ command -v docker && command -v dockerd; } >/dev/null || docker version >/dev/null 2>&1 || missing="docker.io"
command -v docker-compose >/dev/null || docker compose version >/dev/null 2>&1 || missing="$missing docker-compose"
[ -x /usr/sbin/debootstrap ] || missing="$missing debootstrap"
[ -n "$missing" ] || exit 0

without="tests of containers will be skipped; missing:$missing"
if ! command -v apt-get >/dev/null; then
  say "there is no apt-get: $without"
  exit 0
elif [ "$(id -u)" = 0 ]; then as_root=""
elif command -v sudo >/dev/null; then as_root="sudo"
else
  say "neither root nor sudo is at hand: $without"
  exit 0
fi
say "installing $missing"
$as_root apt-get update -q >/dev/null 2>&1 || say "apt-get update failed, going on with what is known"
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $missing >/dev/null 2>&1 ||
  say "apt-get cannot install them: $without"
