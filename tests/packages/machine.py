"""Boots a Debian machine with systemd and pure cgroup v2 under QEMU without KVM, and runs guest/ there.

The machine has no network. Its tests write to the serial console and switch it off; the last line says
whether they passed.
"""

import os
import selectors
import shutil
import subprocess
import time
from pathlib import Path

from artifacts import WORK, deb, earlier_deb
from report import proven, run as run_command
from roots import BOOTABLE, inside, root, unpack

#: Time limit of the whole run, in seconds. An emulated machine is 10 to 40 times as slow.
RUN_S_MAX = 3 * 3600
#: Time without any output after which the machine counts as hung, in seconds.
SILENCE_S_MAX = 2000
DISK_SIZE = "4G"
PASSED = "PACKAGE-TEST PASSED"
FAILED = "PACKAGE-TEST FAILED"

UNIT = """\
[Unit]
Description=Tests of the package
After=multi-user.target

[Service]
Type=oneshot
ExecStart=/usr/bin/python3 -u /test/guest/test.py
ExecStopPost=/usr/bin/systemctl --no-block poweroff
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
TimeoutStartSec=infinity
Environment=HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive
"""
KERNEL_LINE = (
    "root=/dev/vda rw console=ttyS0 loglevel=3 net.ifnames=0 systemd.show_status=false mitigations=off "
    "systemd.unified_cgroup_hierarchy=1 systemd.default_timeout_start_sec=600 systemd.wants=package-test.service"
)


def run() -> None:
    """Make the disk, boot it, and follow the tests."""
    directory = WORK / "machine"
    unpack(root("bootable", BOOTABLE), directory)
    prepare(directory)
    kernel, initrd = (next((directory / "boot").glob(name)) for name in ("vmlinuz-*", "initrd.img-*"))
    boot = WORK / "boot"
    boot.mkdir(exist_ok=True)
    shutil.copy(kernel, boot / "vmlinuz")
    shutil.copy(initrd, boot / "initrd")
    disk = WORK / "disk.ext4"
    disk.unlink(missing_ok=True)
    run_command(["mke2fs", "-q", "-t", "ext4", "-d", str(directory), str(disk), DISK_SIZE])
    run_command(["rm", "-rf", "--one-file-system", str(directory)])
    print(f"  booting {kernel.name}", flush=True)
    follow(start(boot, disk))
    disk.unlink()


def prepare(directory: Path) -> None:
    """Copy the packages and the tests, and enable no more services than they need."""
    packages = directory / "test"
    packages.mkdir()
    shutil.copy(earlier_deb(), packages / "earlier.deb")
    shutil.copy(deb(), packages / "isolet.deb")
    shutil.copytree(Path(__file__).parent / "guest", packages / "guest")
    (directory / "etc/systemd/system/package-test.service").write_text(UNIT)
    (directory / "etc/hostname").write_text("isolet-test\n")
    off = "systemctl mask serial-getty@ttyS0.service getty@tty1.service apt-daily.timer apt-daily-upgrade.timer man-db.timer"
    inside(directory, f"{off} dpkg-db-backup.timer e2scrub_all.timer fstrim.timer; rm -f /etc/resolv.conf")


def start(boot: Path, disk: Path) -> subprocess.Popen[bytes]:
    """Start QEMU with the serial console on its standard output."""
    # ISOLET_QEMU_ACCEL=kvm makes the same test quick on a machine that has KVM.
    accelerator = os.environ.get("ISOLET_QEMU_ACCEL", "tcg,thread=multi")
    command = [
        "qemu-system-x86_64",
        "-accel",
        accelerator,
        "-cpu",
        "max",
        "-smp",
        "2",
        "-m",
        "4G",
        "-nodefaults",
        "-no-reboot",
        "-display",
        "none",
        "-serial",
        "stdio",
        "-object",
        "rng-random,id=rng,filename=/dev/urandom",
        "-device",
        "virtio-rng-pci,rng=rng",
        "-drive",
        f"file={disk},if=virtio,format=raw,cache=unsafe",
        "-kernel",
        str(boot / "vmlinuz"),
        "-initrd",
        str(boot / "initrd"),
        "-append",
        KERNEL_LINE,
    ]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)


def follow(machine: subprocess.Popen[bytes]) -> None:
    """Print the console until the machine is off. It is ended when it is silent or takes too long."""
    started = time.monotonic()
    last = started
    console = b""
    try:
        with selectors.DefaultSelector() as selector, open(WORK / "console.log", "wb") as log:
            selector.register(machine.stdout, selectors.EVENT_READ)
            while True:
                now = time.monotonic()
                if now - started > RUN_S_MAX or now - last > SILENCE_S_MAX:
                    raise TimeoutError(f"the machine hangs; its console is in {log.name}")
                if not selector.select(5):
                    continue
                data = os.read(machine.stdout.fileno(), 65536)
                if not data:
                    break
                last = time.monotonic()
                log.write(data)
                console += data
                *lines, console = console.split(b"\n")
                for line in lines:
                    text = line.decode(errors="replace").strip()
                    if text:
                        print(f"  {last - started:5.0f} s | {text}", flush=True)
                    if FAILED in text:
                        raise AssertionError("a test failed on the machine, see above")
                    if PASSED in text:
                        proven("every test on the machine passed")
                        return
    finally:
        machine.kill()
        machine.wait()
    raise AssertionError("the machine went off before its tests ended")
