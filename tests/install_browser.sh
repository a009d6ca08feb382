#!/bin/sh
# Install the browser that tests look at reports with, where that can be done; without it those tests are skipped and say so.
# Called by make; never fails.
set -eu
say() { printf '%s\n' "browser: $*" >&2; }

for name in chromium-headless-shell chromium chromium-browser google-chrome google-chrome-stable; do
  ! command -v "$name" >/dev/null || exit 0
done
without="the report's tests in a browser will be skipped"
if ! command -v apt-get >/dev/null; then
  say "none is here and there is no apt-get: $without"
  exit 0
elif [ "$(id -u)" = 0 ]; then as_root=""
elif command -v sudo >/dev/null; then as_root="sudo"
else
  say "none is here and neither root nor sudo is at hand: $without"
  exit 0
fi
$as_root apt-get update -q >/dev/null 2>&1 || say "apt-get update failed, going on with what is known"
for package in chromium-headless-shell chromium; do
  say "installing $package"
  ! $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "$package" >/dev/null 2>&1 || exit 0
done
say "apt-get cannot install one: $without"
