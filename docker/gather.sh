#!/bin/sh
# In a build: copy what has changed since /from/before was touched into /added, but not what came in /from. A later stage takes only
# that, so that wheels and packages stay behind.
set -eu
cd /
mkdir added
find . -xdev -cnewer from/before ! -path . ! -path './added*' ! -path './from*' ! -path './tmp*' -print0 |
  tar -c --no-recursion --null -T - | tar -x -C added
