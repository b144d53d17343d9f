#!/usr/bin/env bash
# Builds the container image of the server: build.sh DEB ARCHIVE [BASE]
#
# Writes ARCHIVE, an OCI archive that `podman load` and `skopeo copy oci-archive:` read. BASE is an image of
# Debian 12; without it, mmdebstrap makes one from the Debian mirror.
set -euo pipefail
deb=$(realpath "$1") archive=$(realpath "$2") base=${3:-}
here=$(realpath "$(dirname "$0")")
for program in buildah mmdebstrap; do
  command -v $program >/dev/null || { echo "$program is missing: apt-get install buildah mmdebstrap" >&2; exit 1; }
done
# Without a runtime that may create containers, buildah runs commands in a chroot.
export BUILDAH_ISOLATION=${BUILDAH_ISOLATION:-chroot}

context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
if [ -z "$base" ]; then
  base=localhost/isolet-base:12
  echo "making $base with mmdebstrap"
  mmdebstrap --quiet --variant=apt bookworm "$context/base.tar"
  from=$(buildah from scratch)
  buildah add --quiet "$from" "$context/base.tar" / >/dev/null
  buildah config --cmd /bin/bash "$from"
  buildah commit --quiet --rm "$from" "$base" >/dev/null
  rm "$context/base.tar"
fi
cp "$deb" "$context/isolet.deb"
cp "$here/entrypoint.sh" "$context/"
version=$(dpkg-deb --field "$deb" Version)
buildah build --quiet --format oci --build-arg "BASE=$base" --label "org.opencontainers.image.version=$version" \
  --label org.opencontainers.image.title=isolet --label org.opencontainers.image.licenses=Apache-2.0 \
  --tag "localhost/isolet:$version" --file "$here/Containerfile" "$context" >/dev/null
rm -f "$archive"
buildah push --quiet "localhost/isolet:$version" "oci-archive:$archive:isolet:$version"
echo "$archive: localhost/isolet:$version"
