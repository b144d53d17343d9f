//! Layers that real overlays made, merged and shown by an overlay again.

use super::*;
use std::path::PathBuf;
use std::process::Command;

/// What the tenant of each layer did, from the bottom up.
const CHANGES: [&str; 4] = [
    "rm gone; mkdir -p a/b/c gone kind etc; echo 1 >a/b/c/1; echo 1 >a/b/2; echo 1 >gone/x; echo f >file; \
     echo 1 >kind/below; ln a/b/2 a/hard; chmod 1777 etc; python3 -c 'import os; os.setxattr(\"etc\", \"user.x\", b\"1\")'",
    "rm -r gone; echo was a directory >gone; rm file; mkdir file; echo in >file/in; rm -r a/b; \
     mkdir a/b; echo new >a/b/new; rm base/one; mkfifo pipe",
    "rm -r kind; echo other >kind; rm gone; mkdir gone; echo back >gone/back; rm -r base/dir; \
     ln -s x link; chown 5:6 etc; echo later >a/late",
    "rm kind; mkdir kind; echo top >kind/top; mv a/late a/moved; mkdir -p base/dir; \
     echo 4 >base/dir/again; rm a/b/new; echo 4 >>a/hard",
];

fn bash(script: &str, at: &Path) -> String {
    let output = Command::new("bash").args(["-ec", script]).current_dir(at).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Mounts an overlay of these directories, the top one first, in a mount namespace of its own, and
/// runs a script in it. With an upper directory, it is the first.
fn in_overlay(folder: &Path, lower: &[PathBuf], upper: Option<&Path>, script: &str) -> String {
    let lower: Vec<_> = lower.iter().map(|path| path.display().to_string()).collect();
    let mut options = format!("userxattr,lowerdir={}", lower.join(":"));
    if let Some(upper) = upper {
        let work = folder.join("work");
        std::fs::create_dir_all(&work).unwrap();
        options += &format!(",upperdir={},workdir={}", upper.display(), work.display());
    }
    let merged = folder.join("merged");
    std::fs::create_dir_all(&merged).unwrap();
    let inner = format!("mount -t overlay overlay -o {options} merged; cd merged; {script}");
    let quoted = inner.replace('\'', "'\\''");
    bash(&format!("unshare -m bash -ec '{quoted}'"), folder)
}

/// Times of directories differ, because an overlay takes them from the top.
const SHOW: &str = "find . -mindepth 1 -printf \"%P %y %m %U:%G %s %l\\n\" | grep -v \" d \" | sort; \
    find . -mindepth 1 -type d -printf \"%P d %m %U:%G\\n\" | sort; \
    find . -type f | sort | xargs -r -d \"\\n\" md5sum; \
    python3 -c \"import os; print(os.getxattr('etc', 'user.x'))\"";

#[test]
fn a_merged_layer_shows_what_its_layers_showed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let at = |name: &str| folder.join(name);
    for name in ["base", "layer0", "layer1", "layer2", "layer3"] {
        std::fs::create_dir(at(name)).unwrap();
    }
    bash(
        "mkdir -p base/dir kind; echo 1 >base/one; echo 2 >base/dir/two; echo host >kind/host; \
          echo host >gone",
        &at("base"),
    );
    let mut lower = vec![at("base")];
    for (number, changes) in CHANGES.iter().enumerate() {
        let upper = at(&format!("layer{number}"));
        in_overlay(folder, &lower, Some(&upper), changes);
        lower.insert(0, upper);
    }
    let expected = in_overlay(folder, &lower, None, SHOW);
    assert!(expected.contains("kind/top") && !expected.contains("kind/host"), "{expected}");
    // The top ones of several numbers, with the others below.
    for count in 2..=4 {
        let merged = at(&format!("merged{count}"));
        let links = at(&format!("links{count}"));
        std::fs::create_dir(&links).unwrap();
        let top: Vec<&Path> = lower[..count].iter().map(PathBuf::as_path).collect();
        merge_layers(CopyMethod::Full, &top, &merged, &links, &mut |_| Ok(())).unwrap();
        let mut folded = vec![merged];
        folded.extend(lower[count..].iter().cloned());
        assert_eq!(in_overlay(folder, &folded, None, SHOW), expected, "{count}");
    }
}

#[test]
fn layers_deeper_than_any_path_are_merged() {
    let folder = tempfile::tempdir().unwrap();
    let deep = "for i in $(seq 300); do mkdir 0123456789012345678901234567890123456789; \
                cd 0123456789012345678901234567890123456789; done; echo end >end";
    let layers = [folder.path().join("top"), folder.path().join("below")];
    for layer in &layers {
        std::fs::create_dir(layer).unwrap();
        bash(deep, layer);
    }
    let links = folder.path().join("links");
    std::fs::create_dir(&links).unwrap();
    let merged = folder.path().join("merged");
    let layers: Vec<&Path> = layers.iter().map(PathBuf::as_path).collect();
    let copied = merge_layers(CopyMethod::Full, &layers, &merged, &links, &mut |_| Ok(())).unwrap();
    assert_eq!(copied.entries, 302);
    isolet_sys::tree::remove(&merged).unwrap();
    for layer in layers {
        isolet_sys::tree::remove(layer).unwrap();
    }
}
