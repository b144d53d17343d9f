#!/bin/sh
# Installs Isolet from this archive, or upgrades it. Running sandboxes keep running.
#
#     ./install.sh [--prefix DIR] [--no-start]
#
# --prefix DIR   install programs and man pages below DIR [default: /usr/local]
# --no-start     do not enable and start the server
set -eu

usage() { sed -n 's/^# \{0,1\}//; 2,7p' "$0"; }

prefix=/usr/local start=yes
while [ $# -gt 0 ]; do
  case $1 in
    --prefix) prefix=${2:?--prefix needs a directory}; shift 2 ;;
    --no-start) start=no; shift ;;
    -h | --help) usage; exit 0 ;;
    *) echo "install.sh: unknown option $1" >&2; usage >&2; exit 2 ;;
  esac
done
case $prefix in /*) ;; *) echo "install.sh: --prefix needs an absolute path" >&2; exit 2 ;; esac
[ "$(id -u)" = 0 ] || { echo "install.sh: run it as root: sudo ./install.sh" >&2; exit 1; }
here=$(cd "$(dirname "$0")" && pwd)

install -m 755 -D -t "$prefix/bin" "$here/bin/isolet"
install -m 755 -D -t "$prefix/lib/isolet" "$here"/lib/isolet/*
install -m 644 -D -t "$prefix/share/man/man1" "$here"/share/man/man1/*
install -m 644 -D "$here/share/completions/isolet.bash" "$prefix/share/bash-completion/completions/isolet"
install -m 644 -D -t "$prefix/share/zsh/site-functions" "$here/share/completions/_isolet"
install -m 644 -D -t "$prefix/share/fish/vendor_completions.d" "$here/share/completions/isolet.fish"
# A configuration that exists is yours.
if cmp -s "$here/etc/isolet.toml" /etc/isolet/isolet.toml; then
  :
elif [ -e /etc/isolet/isolet.toml ]; then
  install -m 644 "$here/etc/isolet.toml" /etc/isolet/isolet.toml.new
else
  install -m 644 -D "$here/etc/isolet.toml" /etc/isolet/isolet.toml
fi
mkdir -p /etc/systemd/system
sed "s|^ExecStart=/usr/bin/|ExecStart=$prefix/bin/|" "$here/isolet.service" > /etc/systemd/system/isolet.service
echo "installed $("$prefix/bin/isolet" --version) below $prefix"

command -v nft >/dev/null || [ -x /usr/sbin/nft ] ||
  echo "nft is missing, so sandboxes have no network: install the package nftables" >&2
[ "$start" = yes ] || exit 0
if [ ! -d /run/systemd/system ]; then
  echo "systemd does not run here; start the server with: $prefix/bin/isolet serve" >&2
  exit 0
fi
systemctl daemon-reload
systemctl enable isolet
systemctl restart isolet
echo "the server runs; the first key is in /var/lib/isolet/key"
