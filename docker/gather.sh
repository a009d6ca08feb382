#!/bin/sh
# In a build: copy into /added what the image below lacks, by its list of files /from/below, and what has changed since /from/before was
# touched. A later stage takes only that, so that wheels and packages stay behind.
set -eu
cd /
mkdir added
all() {
  find . -xdev \( -path ./added -o -path ./from -o -path './tmp/*' -o -path ./.dockerenv -o -path './etc/host*' -o -path ./etc/resolv.conf \) \
    -prune -o "$@" -print
}
{
  all -cnewer from/before
  all -true | grep -vxFf from/below
} | LC_ALL=C sort -u | tar -c --no-recursion --verbatim-files-from -T - | tar -x -C added
