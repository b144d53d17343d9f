#!/bin/sh
# Removes what install.sh installed, and ends all sandboxes. Their files stay unless you add --purge.
#
#     ./uninstall.sh [--prefix DIR] [--purge]
#
# --prefix DIR   the prefix that was given to install.sh [default: /usr/local]
# --purge        also delete the configuration and /var/lib/isolet with the files of all sandboxes
set -eu

usage() { sed -n 's/^# \{0,1\}//; 2,7p' "$0"; }

prefix=/usr/local purge=no
while [ $# -gt 0 ]; do
  case $1 in
    --prefix) prefix=${2:?--prefix needs a directory}; shift 2 ;;
    --purge) purge=yes; shift ;;
    -h | --help) usage; exit 0 ;;
    *) echo "uninstall.sh: unknown option $1" >&2; usage >&2; exit 2 ;;
  esac
done
[ "$(id -u)" = 0 ] || { echo "uninstall.sh: run it as root: sudo ./uninstall.sh" >&2; exit 1; }

if [ -d /run/systemd/system ] && [ -e /etc/systemd/system/isolet.service ]; then
  systemctl disable --now isolet
fi
if [ -r /etc/default/isolet ]; then
  set -a
  . /etc/default/isolet
  set +a
fi
if [ -x "$prefix/bin/isolet" ]; then
  "$prefix/bin/isolet" teardown || echo "some sandboxes could not be ended (see above); a reboot ends them" >&2
fi

rm -f "$prefix/bin/isolet" "$prefix"/share/man/man1/isolet.1 "$prefix"/share/man/man1/isolet-*.1
rm -f "$prefix/share/bash-completion/completions/isolet" "$prefix/share/zsh/site-functions/_isolet" \
  "$prefix/share/fish/vendor_completions.d/isolet.fish" /etc/systemd/system/isolet.service
rm -rf "$prefix/lib/isolet"
[ ! -d /run/systemd/system ] || systemctl daemon-reload
if [ "$purge" = yes ]; then
  rm -rf --one-file-system /etc/isolet /var/lib/isolet
  echo "removed Isolet, its configuration and all data"
else
  echo "removed Isolet; /etc/isolet and /var/lib/isolet stay (delete them with --purge)"
fi
