#!/usr/bin/env bash
# A real Docker Engine in namespaces of its own: dockbox.sh start DIR | exec DIR CMD… | stop DIR
# It sees this machine's processes and network as little as they see it. DIR: the absolute path of an existing folder.
# Needs root and the package docker.io. No registry: import images; networks: none or host (the box's own loopback).
set -euo pipefail
action=$1 folder=$2
shift 2
group=/sys/fs/cgroup/unified
[ -d "$group" ] || group=/sys/fs/cgroup
group=$group/dockbox-$(basename "$folder")

case $action in
start)
  mkdir -p "$group" "$folder/data"
  cat >"$folder/inner.sh" <<'INNER'
set -e
folder=$1
mount --make-rprivate /
# a view of the control groups that begins at our own
umount -R /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /sys/fs/cgroup/init
echo 0 >/sys/fs/cgroup/init/cgroup.procs
ip link set lo up
mount -t tmpfs tmpfs /run
# where its containers' logs are expected
mkdir -p /var/lib/docker
mount --bind "$folder/data" /var/lib/docker
exec dockerd --data-root /var/lib/docker --exec-root /run/dk --host "unix://$folder/docker.sock" --pidfile /run/dk.pid \
  --bridge=none --iptables=false --ip-forward=false --ip-masq=false --storage-driver=overlay2
INNER
  (
    echo "$BASHPID" >"$group/cgroup.procs"
    exec unshare --mount --net --ipc --cgroup --pid --fork --kill-child --mount-proc bash "$folder/inner.sh" "$folder"
  ) >"$folder/dockerd.log" 2>&1 </dev/null &
  outer=$!
  echo "$outer" >"$folder/pid"
  for _ in $(seq 600); do
    if docker -H "unix://$folder/docker.sock" version >/dev/null 2>&1; then
      tr ' ' '\n' </proc/"$outer"/task/"$outer"/children | head -1 >"$folder/leader"
      exit 0
    fi
    kill -0 "$outer" 2>/dev/null || break
    sleep 0.05
  done
  cat "$folder/dockerd.log" >&2
  kill "$outer" 2>/dev/null || true
  exit 1
  ;;
exec) exec nsenter -t "$(cat "$folder/leader")" -m -n -i -p env DOCKER_HOST="unix://$folder/docker.sock" "$@" ;;
stop)
  outer=$(cat "$folder/pid")
  kill "$(cat "$folder/leader")" || true
  for _ in $(seq 400); do kill -0 "$outer" 2>/dev/null || break; sleep 0.05; done
  kill -9 "$outer" 2>/dev/null || true
  for _ in $(seq 40); do
    find "$group" -depth -type d -exec rmdir {} \; 2>/dev/null || true
    [ -d "$group" ] || break
    sleep 0.05
  done
  ;;
esac
