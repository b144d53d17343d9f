# What is published: the Debian package, the archive, the container image and the SDKs. The Makefile includes
# this file. Everything is written to dist/. The manifests in packaging/kubernetes are published as they are.

VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
ARCH := $(firstword $(subst -, ,$(HOST)))
ARCHIVE := isolet-$(VERSION)-$(ARCH)-linux
# What the packages contain beside the programs.
GENERATED := dist/man dist/completions

.PHONY: deb tarball image sdk-packages package-test package-tools generated sbom check-workflow check-kubernetes

# The Debian package. DEB_REVISION tells builds of one version apart.
DEB_REVISION ?= 1
deb: build generated package-tools
	cargo deb --quiet --no-build --no-strip -p isolet --deb-revision "$(DEB_REVISION)" -o dist/
	@ls dist/isolet_$(VERSION)-$(DEB_REVISION)_*.deb

generated:
	rm -rf $(GENERATED)
	dist/isolet generate man dist/man
	dist/isolet generate completions dist/completions

# An archive for machines without dpkg. Its install.sh and uninstall.sh need nothing but a shell and coreutils.
tarball: build generated
	rm -rf dist/$(ARCHIVE)
	install -m 755 -D -t dist/$(ARCHIVE)/bin dist/isolet
	install -m 755 -D -t dist/$(ARCHIVE)/lib/isolet $(addprefix dist/,$(filter-out isolet,$(PROGRAMS)))
	install -m 644 -D -t dist/$(ARCHIVE)/share/man/man1 dist/man/*.1
	install -m 644 -D -t dist/$(ARCHIVE)/share/completions dist/completions/*
	install -m 644 -D -t dist/$(ARCHIVE)/etc config/isolet.toml
	install -m 644 -t dist/$(ARCHIVE) packaging/isolet.service LICENSE README.md CHANGELOG.md docs/install.md
	install -m 755 -t dist/$(ARCHIVE) packaging/archive/install.sh packaging/archive/uninstall.sh
	tar --sort=name --owner=0 --group=0 --numeric-owner -C dist -caf dist/$(ARCHIVE).tar.gz $(ARCHIVE)
	rm -rf dist/$(ARCHIVE)
	@ls dist/$(ARCHIVE).tar.gz

# The container image as an OCI archive. BASE is an image of Debian 12; without it, mmdebstrap makes one, so that
# no registry is needed.
BASE ?=
image: deb
	packaging/image/build.sh dist/isolet_$(VERSION)-$(DEB_REVISION)_amd64.deb dist/isolet-$(VERSION)-image.tar "$(BASE)"

# The SDKs as they are published, and the checks that the registries make.
sdk-packages: sdk python
	rm -rf dist/sdk
	$(PYTHON)/python -m build --quiet --outdir dist/sdk sdk/python
	$(PYTHON)/twine check --strict dist/sdk/isolet-$(VERSION)*
	cd sdk/typescript && npm run --silent build && npm pack --silent --pack-destination ../../dist/sdk
	cd sdk/typescript && npx publint run --strict ../../dist/sdk/isolet-sdk-*.tgz

# The bill of materials of each program, in CycloneDX. The paths of the machine that builds are left out.
sbom: package-tools
	cargo cyclonedx --quiet --format json --target $(HOST) --manifest-path crates/isolet/Cargo.toml
	mkdir -p dist
	for program in isolet:isolet jail:isolet-launcher agent:isolet-agent egress-proxy:isolet-egress-proxy; do \
	  sed 's|path+file://$(CURDIR)/|path+file:///|g' crates/$${program%:*}/*.cdx.json >dist/$${program#*:}-$(VERSION).cdx.json; done
	find crates tests bench -name '*.cdx.json' -delete

package-tools:
	@cargo deb --version >/dev/null 2>&1 || cargo install --locked cargo-deb
	@cargo cyclonedx --version >/dev/null 2>&1 || cargo install --locked cargo-cyclonedx

# Installs, upgrades, removes and purges the packages on clean systems. Needs root, about 6 GiB below target/, and
# some time: the machine with systemd is emulated without KVM.
PACKAGE_TEST_PACKAGES := dpkg-dev e2fsprogs mmdebstrap qemu-system-x86
package-test: deb tarball sdk-packages etcd
	$(MAKE) packages PACKAGES="$(PACKAGE_TEST_PACKAGES)"
	$(MAKE) check-workflow programs
	PYTHON=$(PYTHON) python3 tests/packages/run.py

# Checks the release workflow against the schema of GitHub's workflows.
check-workflow: python
	$(PYTHON)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml

# Checks the manifests against the schemas of Kubernetes, and their configuration with the server in
# target/programs or ISOLET_PROGRAMS.
check-kubernetes: python
	timeout -s INT 120 $(PYTHON)/pytest -q -p no:cacheprovider tests/kubernetes
