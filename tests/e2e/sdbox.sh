#!/usr/bin/env bash
# A real systemd as PID 1 in a throw-away container: sdbox.sh start NAME [nspawn options] | exec NAME CMD… | stop NAME
# Its root is an overlay of this machine's, kept in memory. Needs root and the package systemd-container.
set -euo pipefail
action=$1 name=$2
shift 2
box=/run/specwatch-box-$name
groups=(/sys/fs/cgroup/systemd /sys/fs/cgroup/unified)
[ -d /sys/fs/cgroup/unified ] || groups=(/sys/fs/cgroup)

leader() { cat "$box/leader"; }

case $action in
start)
  mkdir -p "$box"
  mount -t tmpfs -o size=1g,mode=755 "specwatch-$name" "$box"
  mkdir "$box/upper" "$box/work" "$box/root"
  mount -t overlay "specwatch-$name" -o "lowerdir=/,upperdir=$box/upper,workdir=$box/work" "$box/root"
  mkdir -p "$box/root/etc/systemd/system"
  printf '[Unit]\nRequires=basic.target dbus.socket\nAfter=basic.target\n' >"$box/root/etc/systemd/system/box.target"
  for timer in apt-daily apt-daily-upgrade dpkg-db-backup e2scrub_all fstrim logrotate man-db; do
    ln -sf /dev/null "$box/root/etc/systemd/system/$timer.timer"
  done
  # a control group of its own, so that it never manages this machine's processes
  for group in "${groups[@]}"; do mkdir -p "$group/specwatch-$name"; done
  (
    for group in "${groups[@]}"; do echo "$BASHPID" >"$group/specwatch-$name/cgroup.procs"; done
    exec systemd-nspawn --quiet --register=no --keep-unit --boot --directory="$box/root" --machine="specwatch-$name" \
      --private-network "$@" -- systemd.unit=box.target
  ) >"$box/console.log" 2>&1 </dev/null &
  nspawn=$!
  echo "$nspawn" >"$box/pid"
  for _ in $(seq 400); do
    child=$(cat /proc/"$nspawn"/task/*/children 2>/dev/null | tr ' ' '\n' | head -1)
    if [ -n "$child" ]; then
      case "$(nsenter -t "$child" -a systemctl is-system-running 2>/dev/null || true)" in
      running | degraded)
        echo "$child" >"$box/leader"
        exit 0
        ;;
      esac
    fi
    kill -0 "$nspawn" 2>/dev/null || break
    sleep 0.05
  done
  cat "$box/console.log" >&2
  exit 1
  ;;
exec) exec nsenter -t "$(leader)" -a "$@" ;;
stop)
  child=$(leader) nspawn=$(cat "$box/pid")
  kill -s RTMIN+4 "$child" # poweroff.target
  for _ in $(seq 200); do [ -d "/proc/$child" ] || break; sleep 0.05; done
  for _ in $(seq 100); do kill -0 "$nspawn" 2>/dev/null || break; sleep 0.05; done
  umount "$box/root" "$box"
  rmdir "$box"
  for group in "${groups[@]}"; do find "$group/specwatch-$name" -depth -type d -exec rmdir {} \; 2>/dev/null || true; done
  ;;
esac
