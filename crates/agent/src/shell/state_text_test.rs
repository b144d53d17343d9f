//! Tests which parts of a bash's state are kept, with output as bash writes it.

use super::*;

fn env(names: &[&str]) -> BTreeMap<String, String> {
    names.iter().map(|name| ((*name).to_owned(), "x".to_owned())).collect()
}

fn state(variables: &str, env: &BTreeMap<String, String>) -> String {
    let raw = format!("\0{variables}\0\0\0\0\x000022\n\0/tmp\n\0\0end");
    String::from_utf8(compose(raw.as_bytes(), env).expect("whole")).expect("text")
}

#[test]
fn names_of_its_own_are_found() {
    assert!(OWN.is_sorted());
}

#[test]
fn what_is_not_whole_is_no_state() {
    let none = BTreeMap::new();
    assert!(compose(b"", &none).is_none());
    assert!(compose(b"\0a\0b\0end", &none).is_none());
    assert!(compose(b"\0\0\0\0\0\0\0/tmp\n\0\0en", &none).is_none());
}

#[test]
fn variables_of_bash_and_of_the_driver_are_left_out() {
    let text = state(
        "declare -r SHELLOPTS=\"a\"\ndeclare -- __ist=\"b\"\ndeclare -ai n=([0]=\"1\")\n\
         declare -- a=$'\\n'\ndeclare -- BASHPID\ndeclare -x A\n",
        &env(&[]),
    );
    let values = text.split('\0').nth(1).expect("its part");
    assert_eq!(
        values,
        "declare -ai n=([0]=\"1\")\ndeclare -- a=$'\\n'\ndeclare -x A\n\
         unset -v IFS OLDPWD OPTERR OPTIND PS4\n"
    );
}

#[test]
fn what_was_unset_or_hidden_from_programs_stays_so() {
    let text = state("declare -- A=\"1\"\ndeclare -x B=\"2\"\n", &env(&["A", "B", "C", "PWD"]));
    assert!(text.contains("unset -v C IFS"), "{text}");
    assert!(text.contains("\ndeclare +x A\n"), "{text}");
}

#[test]
fn a_directory_is_quoted_also_where_it_is_no_text() {
    let raw = b"\0\0\0\0\0\x000022\n\0/a'\xff\n\0\0end";
    let state = compose(raw, &BTreeMap::new()).expect("whole");
    let place = state.split(|byte| *byte == 0).next().expect("a part");
    assert_eq!(place, b"umask 0022\nCDPATH= cd -- $'\\x2f\\x61\\x27\\xff'");
}

#[test]
fn an_option_that_ends_shells_is_set_after_all_others() {
    let raw = b"\0\0\0\0\0set -o errexit\nset -o nounset\nset -o xtrace\n\x000022\n\0/\n\0\0end";
    let state = compose(raw, &BTreeMap::new()).expect("whole");
    let parts: Vec<&[u8]> = state.split(|byte| *byte == 0).collect();
    assert_eq!(parts.len(), STATE_PARTS + 1);
    let own = "\\command builtin set -o";
    assert_eq!(parts[4], format!("{own} nounset\n{own} errexit\n").as_bytes());
    assert_eq!(parts[6], format!("{own} xtrace\n").as_bytes());
}
