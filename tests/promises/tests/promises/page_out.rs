//! The memory of a paused sandbox goes to the swap of the machine.

use isolet_kit::{LONG, Options, SOON, wait_until};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// A swap file, which the machine uses until this is dropped.
struct Swap {
    folder: TempDir,
}

impl Swap {
    fn new(mib: usize) -> Self {
        let swap = Self { folder: tempfile::tempdir().expect("a directory") };
        // A file with holes cannot be used.
        fs::write(swap.path(), vec![0; mib << 20]).expect("written");
        run("chmod", &["600", swap.path().to_str().expect("a text")]);
        run("mkswap", &["-q", swap.path().to_str().expect("a text")]);
        run("swapon", &[swap.path().to_str().expect("a text")]);
        swap
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("swap")
    }

    /// Used space, in KiB.
    fn used(&self) -> u64 {
        let all = fs::read_to_string("/proc/swaps").expect("is there");
        let own = all.lines().find(|line| line.starts_with(self.path().to_str().expect("a text")));
        own.expect("it is used").split_whitespace().nth(3).expect("a column").parse().expect("KiB")
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        run("swapoff", &[self.path().to_str().expect("a text")]);
    }
}

fn run(program: &str, args: &[&str]) {
    let done = Command::new(program).args(args).output().expect("it runs");
    assert!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
}

/// It changes the machine, so it does not run beside others.
/// Promises: L20.
#[test]
#[ignore = "uses a swap file: make snapshot-soak"]
fn soak_paused_memory_goes_to_swap_and_comes_back() {
    const MIB: u64 = 200;
    let swap = Swap::new(512);
    let server = Options::new().config("page_out_after_s = 1\n").start();
    let sandbox = server.sandbox();
    let hold = format!(
        "python3 -c 'import os\nheld = os.urandom({MIB} << 20)\nprint(hash(held), flush=True)\n\
         input()\nprint(hash(held), flush=True)' <fifo >out & exec 7>fifo; \
         until [ -s out ]; do sleep 0.05; done; cat out"
    );
    let first = sandbox.command("dev", &format!("mkfifo fifo; export PYTHONHASHSEED=0; {hold}"));
    let first = first["stdout"].as_str().expect("a text").to_owned();
    assert!(first.trim().parse::<i64>().is_ok(), "{first}");
    let used = || {
        let info = server.http().get(&sandbox.path("")).json();
        info["usage"]["memory_bytes"].as_u64().expect("a number")
    };
    assert!(used() > MIB << 20, "{}", used());
    sandbox.post("/pause", &isolet_kit::json!({})).expect(200);
    wait_until("the memory is in the swap", LONG, || {
        (swap.used() > (MIB / 2) << 10 && used() < (MIB / 2) << 20).then_some(())
    });
    sandbox.post("/resume", &isolet_kit::json!({})).expect(200);
    let ask = "echo >&7; until [ $(wc -l <out) = 2 ]; do sleep 0.05; done; cat out";
    let both = sandbox.command("dev", ask);
    assert_eq!(both["stdout"], format!("{first}{first}"), "the memory is what it was");
    sandbox.delete();
    wait_until("the swap is empty", SOON, || (swap.used() < 1024).then_some(()));
}
