# Words and checks that the scripts of this folder share; each sources it.
# The engine is the one that runs use: they know DOCKER_HOST and the default socket, and nothing of `docker context`.
export DOCKER_HOST="${DOCKER_HOST:-unix:///var/run/docker.sock}"

say() { printf '%s\n' "docker: $*" >&2; }

refuse() {
  say "$*"
  exit 2
}

require_engine() {
  command -v docker >/dev/null || refuse "there is no docker command: apt-get install docker.io"
  answer="$(docker version --format '{{.Server.Version}}' 2>&1)" && return
  case "$answer" in
    *ermission\ denied*) refuse "you may not use the Docker engine's socket: use sudo, or have yourself added to the group docker" ;;
    *) refuse "no Docker engine answers at $DOCKER_HOST: start one (systemctl start docker), or name another by DOCKER_HOST" ;;
  esac
}
