#!/usr/bin/env bash
# Starts a separate systemd with the shipped unit, in its own namespaces and in its own control
# groups below those of the caller. No other unit of this machine is started. This script becomes
# the parent of that systemd: when it dies, the systemd and everything that it started die, too.
#
#     systemd.sh PROGRAMS STATE GROUP
#
# PROGRAMS holds the programs, STATE becomes /var/lib/isolet, and GROUP names the control groups,
# which the caller removes.
set -euo pipefail
programs=$(realpath "$1") state=$(realpath "$2") group=$3
unit=$(realpath "$(dirname "$0")/../../packaging/isolet.service")
[ -x /lib/systemd/systemd ] || { echo "systemd is not installed: make packages" >&2; exit 3; }

# Moves this process into its own groups in each hierarchy below /sys/fs/cgroup: the cgroup
# namespace starts there, so this systemd sees no other. Each line names what to mount, and where.
hierarchies=
join() {
  mkdir "$2/$group"
  # A CPU set takes processes only once it has processors and memory.
  for file in cpuset.cpus cpuset.mems; do
    [ ! -e "$2/$group/$file" ] || [ "$1" = cgroup2 ] || cat "$2/$file" > "$2/$group/$file"
  done
  echo 0 > "$2/$group/cgroup.procs"
  hierarchies+="$1 $3"$'\n'
}
while IFS=: read -r _ names path; do
  case $names in
    '') root=/sys/fs/cgroup/unified; [ -d $root ] || root=/sys/fs/cgroup; join cgroup2 "$root$path" "$root" ;;
    name=systemd) join none,name=systemd "/sys/fs/cgroup/systemd$path" /sys/fs/cgroup/systemd ;;
    memory | cpu | cpuset | pids) join "$names" "/sys/fs/cgroup/$names$path" "/sys/fs/cgroup/$names" ;;
  esac
done < <(cat /proc/self/cgroup)

export programs state unit hierarchies
exec unshare --fork --kill-child --pid --mount --cgroup --uts --ipc --net bash -euo pipefail -c '
mount --make-rprivate /
mount -t proc proc /proc
umount -R /sys/fs/cgroup
while read -r what where; do
  case $what in
    "") ;;
    cgroup2) [ "$where" = /sys/fs/cgroup ] || mkdir -p "$where"; mount -t cgroup2 cgroup2 "$where" ;;
    *) mountpoint -q /sys/fs/cgroup || mount -t tmpfs none /sys/fs/cgroup
       mkdir -p "$where"; mount -t cgroup -o "$what" cgroup "$where" ;;
  esac
done <<< "$(sort -k2 <<< "$hierarchies")"
mount -t tmpfs none /run
# The state directory is on a real disk; the rest of /var/lib is an overlay on that of the machine.
mkdir /run/upper /run/work
mount -t overlay -o lowerdir=/var/lib,upperdir=/run/upper,workdir=/run/work overlay /var/lib
mkdir /var/lib/isolet
mount --bind "$state" /var/lib/isolet

# The units of this systemd: isolet.service, and those that every unit depends on.
mkdir -p /run/units/isolet.service.d
cp "$unit" /run/units/
for target in sysinit basic shutdown multi-user; do
  printf "[Unit]\nDescription=%s\nDefaultDependencies=no\n" $target > /run/units/$target.target
done
cat > /run/units/isolet.service.d/test.conf <<END
[Service]
ExecStart=
ExecStart=$programs/isolet serve
StandardOutput=append:/run/isolet.log
StandardError=append:/run/isolet.log
END
export container=isolet SYSTEMD_UNIT_PATH=/run/units
exec /lib/systemd/systemd --unit=basic.target --log-target=null --show-status=0
'
