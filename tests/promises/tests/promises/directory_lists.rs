//! Lists of directories: order, types, hidden names, patterns, pages and names that are not UTF-8.

use crate::files::{GROWTH_KIB, at, file_operation, get, paths, put};
use isolet_kit::{LONG, Rows, json, one, process, quickly};

/// Promises: W4.
#[test]
fn a_directory_list_is_sorted_typed_and_paged() {
    let (_server, sandbox) = one();
    let mut rows = Rows::new();
    sandbox.says(
        "mkdir -p src/a/b src/.git; cd src; echo 123 >a/x.rs; echo 1 >a/b/y.rs; echo >a.txt; echo >.hid; \
         echo >.git/HEAD; ln -s a.txt link; ln -s / out; mkfifo pipe; chmod 600 a.txt",
    );
    let list = |query: &str| get(&sandbox, &format!("src?{query}")).expect(200).json();
    let below = |names: &[&str]| -> Vec<String> {
        names.iter().map(|name| format!("/workspace/src/{name}")).collect()
    };
    rows.row("one level, without hidden names", || {
        let all = list("");
        assert_eq!(paths(&all), below(&["a", "a.txt", "link", "out", "pipe"]));
        let types: Vec<_> = all.as_array().expect("array").iter().map(|one| &one["type"]).collect();
        assert_eq!(types, ["directory", "file", "symlink", "symlink", "other"]);
        assert_eq!((&all[1]["mode"], &all[1]["size"]), (&json!("0600"), &json!(1)));
        assert_eq!((&all[2]["target"], &all[2]["name"]), (&json!("a.txt"), &json!("link")));
        assert!(all[1]["target"].is_null());
    });
    rows.row("hidden", || assert_eq!(paths(&list("hidden=1"))[..2], below(&[".git", ".hid"])));
    rows.row("recursive, by path components, through no symbolic link", || {
        let names = ["a", "a/b", "a/b/y.rs", "a/x.rs", "a.txt", "link", "out", "pipe"];
        assert_eq!(paths(&list("recursive=1")), below(&names));
    });
    rows.row("patterns for names and for paths", || {
        assert_eq!(paths(&list("recursive=1&glob=*.rs")), below(&["a/b/y.rs", "a/x.rs"]));
        assert_eq!(paths(&list("recursive=1&glob=a/*.rs")), below(&["a/x.rs"]));
        let deep = list("recursive=1&hidden=1&glob=**/%7Bx.rs,HEAD%7D");
        assert_eq!(paths(&deep), below(&[".git/HEAD", "a/x.rs"]));
        assert_eq!(list("glob=nothing*"), json!([]));
    });
    rows.row("pages of every size add up to the same list", || {
        let whole = paths(&list("recursive=1&hidden=1"));
        for limit in 1..=whole.len() {
            let mut pages = Vec::new();
            let mut next = Some(at(&sandbox, &format!("src?recursive=1&hidden=1&limit={limit}")));
            while let Some(path) = next {
                let page = sandbox.http.get(&path).expect(200);
                assert!(page.json().as_array().is_some_and(|page| page.len() <= limit));
                pages.extend(paths(&page.json()));
                let link = page
                    .header("link")
                    .map(|link| link[1..].split('>').next().expect("an address"));
                next = link.map(str::to_owned);
            }
            assert_eq!(pages, whole, "limit {limit}");
        }
    });
    rows.row("the top", || {
        for path in ["/files", "/files/", "/files?path=/workspace", "/files/.", "/files?path=."] {
            let all = sandbox.http.get(&sandbox.path(path)).expect(200).json();
            assert_eq!(paths(&all), ["/workspace/src"], "{path}");
        }
        let root = paths(&sandbox.http.get(&sandbox.path("/files?path=/")).expect(200).json());
        assert!(root.contains(&"/etc".to_owned()) && root.contains(&"/usr".to_owned()), "{root:?}");
    });
    rows.row("names that are not UTF-8 are listed in two forms", || {
        put(&sandbox, "odd/%ff%fe", b"odd").expect(201);
        let all = get(&sandbox, "odd").expect(200).json();
        assert_eq!(
            (&all[0]["name"], &all[0]["name_b64"]),
            (&json!("\u{fffd}\u{fffd}"), &json!("//4="))
        );
        assert_eq!(get(&sandbox, "odd/%ff%fe").expect(200).text(), "odd");
        let exact = &all[0]["path_b64"];
        let moved =
            file_operation(&sandbox, &json!({"op": "move", "path_b64": exact, "to": "odd/even"}));
        assert_eq!(moved.expect(200).json()["path"], "/workspace/odd/even");
    });
    rows.row("invalid queries", || {
        for query in
            ["limit=0", "limit=10001", "limit=x", "cursor=%21", "recursive=2", "glob=", "nope=1"]
        {
            assert_eq!(get(&sandbox, &format!("src?{query}")).status, 400, "{query}");
        }
        assert_eq!(get(&sandbox, "src/a.txt?recursive=1").status, 400);
    });
}

/// Promises: W4.
#[test]
fn a_large_directory_comes_in_pages_and_leaves_memory_alone() {
    let (server, sandbox) = one();
    sandbox.says("mkdir many; cd many; seq -f 'f%06g' 1 30000 | xargs touch");
    let mut count = 0;
    let mut next = Some(at(&sandbox, "many?limit=10000"));
    let before = process::memory_kib(server.agent());
    while let Some(path) = next {
        let page = sandbox.http.get(&path).expect(200);
        count += page.json().as_array().map_or(0, Vec::len);
        next = page.header("link").and_then(|link| Some(link[1..].split('>').next()?.to_owned()));
    }
    assert_eq!(count, 30_000);
    assert!(process::memory_kib(server.agent()) < before + GROWTH_KIB);
    quickly("a removal", LONG, || {
        assert_eq!(sandbox.http.delete(&at(&sandbox, "many?recursive=1")).status, 204);
    });
    assert_eq!(get(&sandbox, "many").status, 404);
}
