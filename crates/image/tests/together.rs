//! Images that are pulled, imported and removed at the same time: each is recorded complete or not at
//! all, and no layer in use is removed.

use isolet_image::{Config, Error, Image, Images, ImagesInUse, Pin, Platform, Reference};
use isolet_kit::image::{Image as Made, Layer, Registry, RegistryFault};
use isolet_kit::{Value, json};
use isolet_metrics::ImageMetrics;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

type Done = Result<(Arc<Image>, Pin), Error>;

fn opened(root: &Path, registry: Option<&Registry>) -> Images {
    limited(root, registry, Duration::from_secs(200))
}

/// Opens images whose pulls may take so long.
fn limited(root: &Path, registry: Option<&Registry>, pull: Duration) -> Images {
    let mut config = Config::new(root.to_owned());
    config.limits.pull = pull;
    config.registries = registry.map(Registry::host).into_iter().collect();
    Images::open(config, ImageMetrics::default()).expect("opens")
}

fn named(name: &str) -> Reference {
    Reference::parse(name).expect("a name")
}

/// An image without bash, with layers that no other image has.
fn made(content: &str, layers: usize, settings: &Value) -> Made {
    let layer = |number: usize| {
        let text = format!("{content} {number}");
        let layer = Layer::new().directory("etc").file("etc/passwd", b"").link("lost", "/nowhere");
        layer.file("text", text.as_bytes()).bytes()
    };
    Made::new(&(0..layers).map(layer).collect::<Vec<_>>(), settings)
}

async fn import(images: &Images, name: &str, image: &Made) -> Done {
    let mut spool = images.spool("default").await?;
    spool.write(&image.layout()).await?;
    images.import("default", spool, Some(named(name)), |_| Ok(())).await
}

fn frame(root: &Path) -> std::path::PathBuf {
    let mut found =
        fs::read_dir(root.join("frames")).expect("there").map(|one| one.unwrap().path());
    let frame = found.next().expect("an init layer");
    assert!(found.next().is_none(), "one init layer and nothing else");
    frame
}

/// Checks that the init layer is complete.
fn whole(root: &Path) {
    let frame = frame(root);
    let mode = |name: &str| {
        let about = fs::symlink_metadata(frame.join(name));
        about.unwrap_or_else(|error| panic!("{name}: {error}")).permissions().mode() & 0o7777
    };
    for (name, is) in [("proc", 0o555), ("root", 0o700), ("tmp", 0o1777), ("var/tmp", 0o1777)] {
        assert_eq!(mode(name), is, "{name}");
    }
    for name in ["dev", "etc/isolet", "home", "run", "sys", "workspace", "bin/bash"] {
        let _ = mode(name);
    }
    for name in ["etc/hosts", "etc/hostname", "etc/resolv.conf"] {
        assert!(!fs::read(frame.join(name)).expect("there").is_empty(), "{name}");
    }
    let bash = fs::read("/bin/bash-static").expect("the package bash-static is installed");
    assert!(fs::read(frame.join("bin/bash")).expect("there") == bash, "all of bash");
}

fn count(root: &Path, directory: &str) -> usize {
    fs::read_dir(root.join(directory)).expect("there").count()
}

// Two first imports at once built the init layer in the same directory; the first to finish renamed
// the other's half-built layer into place, and every later sandbox without bash used it.
/// Promises: A13.
#[tokio::test(flavor = "multi_thread")]
async fn parallel_first_imports_create_a_complete_init_layer() {
    for _ in 0..4 {
        let root = tempfile::tempdir().expect("a directory");
        let images = opened(root.path(), None);
        let all = (0..8).map(|number| {
            let images = images.clone();
            tokio::spawn(async move {
                let name = format!("local/a{number}");
                import(&images, &name, &made(&name, 1, &json!({}))).await
            })
        });
        for one in all.collect::<Vec<_>>() {
            one.await.expect("no panic").expect("imports");
        }
        whole(root.path());
        assert_eq!(count(root.path(), "staging"), 0);
    }
}

/// Promises: A13.
#[tokio::test]
async fn an_incomplete_init_layer_is_replaced_and_a_complete_one_stays() {
    let root = tempfile::tempdir().expect("a directory");
    let root = root.path();
    let images = opened(root, None);
    let image = made("a", 1, &json!({}));
    import(&images, "local/a", &image).await.expect("imports");
    let which = |root: &Path| fs::metadata(frame(root)).expect("there").ino();
    let first = which(root);
    import(&images, "local/a", &image).await.expect("imports");
    drop(images);
    let images = opened(root, None);
    assert_eq!(which(root), first, "sandboxes may stand on it");
    fs::remove_file(frame(root).join("etc/hosts")).expect("removes");
    import(&images, "local/a", &image).await.expect("imports");
    whole(root);
    drop(images);
    fs::remove_dir(frame(root).join("workspace")).expect("removes");
    fs::create_dir_all(root.join("frames/new-bin/etc")).expect("makes");
    let _images = opened(root, None);
    whole(root);
    assert_eq!(count(root, "staging"), 0);
}

// A prepared layer belonged to no image until its image was recorded. Removing another image deleted
// it, and an import of another tenant failed, or succeeded without its layers.
/// Promises: A14.
#[tokio::test(flavor = "multi_thread")]
async fn an_import_keeps_its_layers_while_others_remove_images() {
    let root = tempfile::tempdir().expect("a directory");
    let registry = Registry::start();
    let images = opened(root.path(), Some(&registry));
    let over = Arc::new(AtomicBool::new(false));
    let remover = std::thread::spawn({
        let images = images.clone();
        let over = Arc::clone(&over);
        move || {
            while !over.load(Ordering::Relaxed) {
                images.collect_garbage(false, ImagesInUse::default).expect("collects");
            }
        }
    });
    let come = async {
        // The second import finds layers that are unused by now, or still in use.
        for number in (0..6).flat_map(|number| [number, number]) {
            let image = made(&format!("{number}"), 5, &json!({}));
            let (done, _pin) = import(&images, "local/a", &image).await?;
            assert_eq!(images.missing_layer(&done.root), None, "imported");
            images.remove("default", &named("local/a"), ImagesInUse::default).ok();
            let name = named(&registry.has("b", image));
            let (done, _pin) = images.pull("default", name, Platform::own()).await?;
            assert_eq!(images.missing_layer(&done.root), None, "pulled");
        }
        Ok::<_, Error>(())
    };
    let end = come.await;
    over.store(true, Ordering::Relaxed);
    remover.join().expect("no panic");
    end.expect("all come");
}

/// Promises: A14.
#[tokio::test(flavor = "multi_thread")]
async fn layers_are_held_until_their_pull_has_ended_and_no_longer() {
    let registry = Registry::start();
    let image = made("a", 3, &json!({}));
    let name = registry.has("a", image.clone());
    let manifest: Value = serde_json::from_slice(&image.manifest).expect("a manifest");
    let second = manifest["layers"][1]["digest"].as_str().expect("a digest");
    registry.fault(second, Some(RegistryFault::Drip));
    // On a busy machine the time of the pull may be over before its other layers are ready.
    for seconds in [2, 10, 50] {
        let root = tempfile::tempdir().expect("a directory");
        let images = limited(root.path(), Some(&registry), Duration::from_secs(seconds));
        if are_held_until_the_end(root.path(), &images, &name).await {
            registry.fault("", None);
            images.resolve("default", &name).await.expect("pulls");
            assert_eq!(count(root.path(), "layers"), 3);
            return;
        }
    }
    panic!("two layers of three never become ready");
}

/// Whether two layers were ready before the pull ended, whose second layer comes slowly.
async fn are_held_until_the_end(root: &Path, images: &Images, name: &str) -> bool {
    let pull = tokio::spawn({
        let images = images.clone();
        let name = named(name);
        async move { images.pull("default", name, Platform::own()).await }
    });
    // The first and the third layer are ready while the second is being fetched.
    while count(root, "layers") != 2 && !pull.is_finished() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let collected = images.collect_garbage(true, ImagesInUse::default);
    let left = count(root, "layers");
    let has_ended = pull.is_finished();
    let end = pull.await.expect("no panic").expect_err("it is slow");
    assert!(matches!(end, Error::TooLate { .. }), "{end}");
    if has_ended {
        return false;
    }
    assert_eq!((collected, left), (Ok((0, 0)), 2));
    assert_eq!(images.collect_garbage(false, ImagesInUse::default), Ok((0, 2)));
    true
}

// When another tenant imported the same image, its merged lower layers replaced those that sandboxes
// used.
/// Promises: A14.
#[tokio::test]
async fn merged_layers_stay_when_another_tenant_imports_the_same_image() {
    let root = tempfile::tempdir().expect("a directory");
    let images = opened(root.path(), None);
    let image = made("a", 30, &json!({}));
    let (first, _pin) = import(&images, "local/a", &image).await.expect("imports");
    let lowest = root.path().join(first.root.layers.last().expect("layers"));
    let which = || fs::metadata(&lowest).expect("there").ino();
    let before = which();
    let mut spool = images.spool("other").await.expect("takes it");
    spool.write(&image.layout()).await.expect("takes it");
    let (other, _pin) =
        images.import("other", spool, Some(named("local/a")), |_| Ok(())).await.expect("imports");
    assert_eq!((which(), &other.root), (before, &first.root));
    assert_eq!(count(root.path(), "staging"), 0);
}

// A registry had a different image under the name of an imported one. Once the layers of the import
// were missing, that image was pulled and used in its place.
/// Promises: A15.
#[tokio::test]
async fn an_imported_image_without_its_layers_is_not_pulled() {
    let root = tempfile::tempdir().expect("a directory");
    let registry = Registry::start();
    let root = root.path();
    let name = registry.has("a", made("stranger", 1, &json!({})));
    let own = made("own", 1, &json!({}));
    import(&opened(root, Some(&registry)), &name, &own).await.expect("imports");
    let images = opened(root, Some(&registry));
    let lose = || {
        fs::remove_dir_all(root.join("layers")).expect("removes");
        fs::create_dir(root.join("layers")).expect("makes");
    };
    lose();
    let by_digest = format!("{}/a@{}", registry.host(), own.digest);
    for text in [&name, &by_digest] {
        let refused = images.resolve("default", text).await.expect_err("it is gone");
        assert!(matches!(refused, Error::ImportGone { .. }), "{refused}");
    }
    assert_eq!(registry.asked(), [""; 0]);
    import(&images, &name, &own).await.expect("imports");
    assert_eq!(images.resolve("default", &name).await.expect("is here").0.digest, own.digest);
    // An explicit pull of that name is allowed.
    let (pulled, _pin) =
        images.pull("default", named(&name), Platform::own()).await.expect("pulls");
    assert_ne!(pulled.digest, own.digest);
    lose();
    assert_eq!(images.resolve("default", &name).await.expect("pulls").0.digest, pulled.digest);
}

/// A registry may have a different image under a name that the tenant has given.
/// Promises: A15, A21.
#[tokio::test]
async fn a_name_that_the_tenant_has_given_is_not_pulled() {
    let root = tempfile::tempdir().expect("a directory");
    let root = root.path();
    let registry = Registry::start();
    let image = made("a", 1, &json!({}));
    let name = registry.has("a", image.clone());
    let given = registry.has("b", made("stranger", 1, &json!({})));
    let images = opened(root, Some(&registry));
    images.pull("default", named(&name), Platform::own()).await.expect("pulls");
    let tagged = images.tag("default", &named(&name), vec![named(&given)]).await.expect("tags");
    assert_eq!(tagged.digest, image.digest);
    // The record on the disk says so too.
    drop(images);
    let images = opened(root, Some(&registry));
    assert_eq!(images.resolve("default", &given).await.expect("is here").0.digest, image.digest);
    fs::remove_dir_all(root.join("layers")).expect("removes");
    fs::create_dir(root.join("layers")).expect("makes");
    drop(registry.asked());
    let refused = images.resolve("default", &given).await.expect_err("it is gone");
    assert!(matches!(refused, Error::ImportGone { .. }), "{refused}");
    assert_eq!(registry.asked(), [""; 0]);
    assert_eq!(images.resolve("default", &name).await.expect("pulls").0.digest, image.digest);
    assert_eq!(images.resolve("default", &given).await.expect("is back").0.digest, image.digest);
    // An explicit pull of that name is allowed, and takes it from the first image.
    let (pulled, _pin) =
        images.pull("default", named(&given), Platform::own()).await.expect("pulls");
    assert_ne!(pulled.digest, image.digest);
    let names = &images.find("default", &named(&name)).expect("is here").names["default"];
    assert_eq!(names.len(), 1, "{names:?}");
}

/// Promises: A16.
#[tokio::test]
async fn an_image_without_a_usable_working_directory_is_refused() {
    let root = tempfile::tempdir().expect("a directory");
    let images = opened(root.path(), None);
    for (cwd, well) in [
        ("/etc/passwd", false),
        ("/etc/passwd/x", false),
        ("/text", false),
        ("/lost", false),
        ("/etc", true),
        ("/new/one", true),
        ("/workspace", true),
    ] {
        let image = made("a", 1, &json!({"WorkingDir": cwd}));
        let done = import(&images, "local/a", &image).await;
        assert_eq!(done.is_ok(), well, "{cwd}: {done:?}");
        if let Err(error) = done {
            assert!(matches!(&error, Error::Bad(reason) if reason.contains(cwd)), "{error}");
        }
    }
}

// Paths and times of all directories were in memory until the end of a layer, 4 KiB for each entry.
// Now the times of a directory are restored when it is left.
/// Promises: A19.
#[tokio::test]
async fn directories_have_the_times_of_their_layers() {
    let root = tempfile::tempdir().expect("a directory");
    let images = opened(root.path(), None);
    let layer = |number: usize| {
        let file = |path: &str| format!("{path}{number}");
        let layer = Layer::new().directory("").directory("a").directory("a/b").link("l", "a/b");
        let layer =
            layer.file(&file("a/b/f"), b"x").file(&file("c"), b"x").file(&file("l/g"), b"x");
        let layer = layer.file(&file("a/made/deep/h"), b"x").file("a/.wh.gone", b"").directory("d");
        // A removal changes the time of a directory too.
        layer.directory("d/tree/below").file("d/tree", b"x").file(&file("d/i"), b"x").bytes()
    };
    for layers in [1, 30] {
        let image = Made::new(&(0..layers).map(layer).collect::<Vec<_>>(), &json!({}));
        let (done, _pin) = import(&images, "local/a", &image).await.expect("imports");
        for tree in done.root.layers.iter().filter(|layer| layer.starts_with("layers/")) {
            for name in ["", "a", "a/b", "d"] {
                let about = fs::metadata(root.path().join(tree).join(name)).expect("there");
                assert_eq!(about.mtime(), 1_600_000_000, "{name} of {tree}");
            }
        }
    }
}
