# Words and checks that the scripts of this folder share; each sources it.
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
    *) refuse "no Docker engine answers at ${DOCKER_HOST:-its default socket}: start one (systemctl start docker), or name another by DOCKER_HOST" ;;
  esac
}
