//! `isolet cluster`: the commands of an operator, typed as the documents show them, and what
//! `openssl` says about the files.

use crate::programs::{ProgramOutput, run};
use isolet_kit::programs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

/// Runs a command in a directory.
fn typed(folder: &Path, line: &str) -> ProgramOutput {
    let mut words = line.split(' ');
    let program = words.next().expect("a program");
    let mut command = match program {
        "isolet" => Command::new(programs().join("isolet")),
        other => Command::new(other),
    };
    run(command.args(words).current_dir(folder).env_remove("ISOLET_CLUSTER_DIR"))
}

/// What `openssl` says about the certificate of a node, with the lists of the CA.
fn verified(folder: &Path, node: &str, purpose: &str) -> ProgramOutput {
    let line = format!(
        "openssl verify -crl_check -x509_strict -purpose {purpose} -CAfile ca/ca.pem -CRLfile ca/revoked.pem {node}/node.pem"
    );
    typed(folder, &line)
}

fn contents(path: &Path) -> String {
    std::fs::read_to_string(path).expect("it can be read")
}

#[test]
fn an_operator_creates_renews_revokes_and_rotates_certificates() {
    let folder = tempfile::tempdir().expect("a directory in /tmp");
    let folder = folder.path();
    let says = |line: &str, words: &[&str]| {
        let output = typed(folder, line).well();
        let all = format!("{}{}", output.out, output.err);
        assert!(words.iter().all(|word| all.contains(word)), "{line}: {all}");
        output
    };
    says("isolet cluster init --dir ca", &["created", "next: isolet cluster issue"]);
    let again = typed(folder, "isolet cluster init --dir ca");
    assert_eq!(again.code, Some(1));
    assert!(again.err.contains("rotate-ca"), "{}", again.err);
    for node in ["node-1", "node-2"] {
        says(&format!("isolet cluster issue {node} --dir ca --out {node}"), &["issued", node]);
        for purpose in ["sslserver", "sslclient"] {
            verified(folder, node, purpose).well();
        }
    }
    let text = says("openssl x509 -in node-1/node.pem -noout -text", &["prime256v1"]).out;
    assert!(text.contains("DNS:node-1.node.isolet.internal"), "{text}");
    let about = std::fs::metadata(folder.join("node-1/node-key.pem")).expect("a key");
    assert_eq!(about.mode() & 0o7777, 0o600);

    // The serial number as openssl prints it, in capitals.
    let serial = says("openssl x509 -in node-1/node.pem -noout -serial", &["serial="]).out;
    let serial = serial.trim().trim_start_matches("serial=").to_owned();
    says("isolet cluster check node-1", &["ok: ", "warnings: 0, failures: 0"]);
    says(&format!("isolet cluster revoke {serial} --dir ca"), &["revoked", "node-1", "copy"]);
    let refused = verified(folder, "node-1", "sslclient");
    assert!(refused.err.contains("certificate revoked"), "{}", refused.err);
    verified(folder, "node-2", "sslclient").well();
    std::fs::copy(folder.join("ca/revoked.pem"), folder.join("node-1/revoked.pem"))
        .expect("copied");
    let checked = typed(folder, "isolet cluster check node-1 --node node-1");
    assert_eq!(checked.code, Some(2), "{}", checked.out);
    assert!(checked.out.contains("Revoked"), "{}", checked.out);

    let renewed = says("isolet cluster renew node-2 --dir ca --out renewed --json", &["renewed"]);
    assert!(renewed.out.contains("renewed/node-2/node.pem"), "{}", renewed.out);
    verified(folder, "renewed/node-2", "sslserver").well();
    says("isolet cluster renew --dir ca --out renewed", &["no certificate ends within 30 days"]);
    let list = says("isolet cluster ls --dir ca", &["issuing", "valid", "replaced", "revoked"]).out;
    assert_eq!(list.lines().filter(|line| line.contains("node-")).count(), 3, "{list}");

    says("isolet cluster rotate-ca start --dir ca", &["trusted", "next: copy", "switch"]);
    assert_eq!(contents(&folder.join("ca/ca.pem")).matches("BEGIN CERTIFICATE").count(), 2);
    verified(folder, "renewed/node-2", "sslserver").well();
    says("isolet cluster rotate-ca switch --dir ca", &["next: renew"]);
    let early = typed(folder, "isolet cluster rotate-ca finish --dir ca");
    assert!(early.code == Some(1) && early.err.contains("node-2"), "{early:?}");
    says("isolet cluster renew --dir ca --out renewed", &["node-2", "copy"]);
    says("isolet cluster rotate-ca finish --dir ca --json", &["authorities", "next"]);
    verified(folder, "renewed/node-2", "sslserver").well();
    let old = verified(folder, "node-2", "sslserver");
    assert!(old.code != Some(0), "the old CA is not trusted any more: {old:?}");
    let keys = std::fs::read_dir(folder.join("ca")).expect("the directory of the CA");
    let keys = keys.filter(|entry| {
        entry.as_ref().expect("an entry").file_name().to_string_lossy().ends_with("-key.pem")
    });
    assert_eq!(keys.count(), 1);
}

#[test]
fn wrong_usage_of_the_cluster_commands_says_what_to_do() {
    let folder = tempfile::tempdir().expect("a directory in /tmp");
    let folder = folder.path();
    for (line, code, words) in [
        ("isolet cluster issue node-1 --dir ca --out out", 1, "isolet cluster init --dir ca"),
        ("isolet cluster ls --dir ca", 1, "isolet cluster init --dir ca"),
        ("isolet cluster issue Node_1 --dir ca --out out", 2, "lower-case letters"),
        ("isolet cluster issue node-1 --dir ca --out out --days 0", 2, "1..=825"),
        ("isolet cluster init", 2, "--dir"),
    ] {
        let refused = typed(folder, line);
        assert_eq!(refused.code, Some(code), "{line}: {}", refused.err);
        assert!(refused.err.contains(words), "{line}: {}", refused.err);
    }
    assert_eq!(std::fs::read_dir(folder).expect("it exists").count(), 0, "nothing was created");
    typed(folder, "isolet cluster init --dir ca").well();
    for (line, words) in [
        ("isolet cluster revoke node-9 --dir ca", "isolet cluster ls"),
        ("isolet cluster renew node-9 --dir ca --out out", "isolet cluster ls"),
        ("isolet cluster rotate-ca finish --dir ca", "rotate-ca start"),
    ] {
        let refused = typed(folder, line);
        assert_eq!(refused.code, Some(1), "{line}: {}", refused.err);
        assert!(refused.err.contains(words), "{line}: {}", refused.err);
    }
    let help = typed(folder, "isolet cluster rotate-ca --help").well();
    assert!(help.out.contains("copy ca/ca.pem and ca/revoked.pem to every node"), "{}", help.out);
}
