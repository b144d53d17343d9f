//! Tests of the record of a sandbox.

use super::*;
use crate::model::input::EnvironmentChange;

fn config() -> Config {
    let mut config = Config::new("/nowhere".into(), std::path::Path::new("/nowhere"));
    config.no_disk = None;
    config.aliases.insert("node:22-slim".into(), "host".into());
    config
}

#[test]
fn an_image_is_the_host_or_stands_for_it() {
    let plan = |image: &str| {
        RecordBody::plan(
            &config(),
            SandboxSpec { image: Some(image.into()), ..SandboxSpec::default() },
        )
    };
    assert_eq!(plan("node:22-slim").unwrap().image_resolved, "host");
    assert_eq!(plan("host").unwrap().image, "host");
    assert_eq!(plan("ubuntu").unwrap().image_resolved, "docker.io/library/ubuntu:latest");
    assert!(matches!(plan("../x"), Err(Error::Image(isolet_image::Error::Reference(_)))));
}

#[test]
fn what_is_out_of_bounds_is_refused_with_its_field() {
    let field = |spec: SandboxSpec| match RecordBody::plan(&config(), spec) {
        Err(Error::BadField { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    assert_eq!(field(SandboxSpec { memory_mib: Some(1), ..SandboxSpec::default() }), "memory_mib");
    assert_eq!(field(SandboxSpec { disk_mib: Some(31), ..SandboxSpec::default() }), "disk_mib");
    assert_eq!(
        field(SandboxSpec { disk_mib: Some(u64::MAX), ..SandboxSpec::default() }),
        "disk_mib"
    );
    assert_eq!(field(SandboxSpec { pids: Some(u64::MAX), ..SandboxSpec::default() }), "pids");
    assert_eq!(field(SandboxSpec { ttl_s: Some(u64::MAX), ..SandboxSpec::default() }), "ttl_s");
    let never = SandboxSpec { sleep_after_s: Some(u64::MAX), ..SandboxSpec::default() };
    assert_eq!(field(never), "sleep_after_s");
}

#[test]
fn a_limited_disk_is_refused_where_the_machine_has_none_and_nothing_else_is() {
    let limits = Limits { disk_mib: 0, ..config().limits };
    let no_disk = Some("no ext4: modprobe ext4".into());
    let config = Config { no_disk, limits, ..config() };
    let plan =
        |disk_mib| RecordBody::plan(&config, SandboxSpec { disk_mib, ..SandboxSpec::default() });
    let Err(Error::Lacks { field, reason }) = plan(Some(64)) else { panic!("not refused") };
    assert_eq!((field, reason.as_str()), ("disk_mib", "no ext4: modprobe ext4"));
    assert_eq!(plan(None).unwrap().limits.disk_mib, 0);
    assert_eq!(plan(Some(0)).unwrap().limits.disk_mib, 0);
}

#[test]
fn a_patch_is_all_or_nothing() {
    let body =
        RecordBody::plan(&config(), SandboxSpec { ttl_s: Some(5), ..SandboxSpec::default() })
            .unwrap();
    let patch = Patch { ttl_s: Some(0), pids: Some(1), ..Patch::default() };
    assert!(body.patched(&config(), patch).is_err());
    let new = body.patched(&config(), Patch { ttl_s: Some(0), ..Patch::default() }).unwrap();
    assert_eq!((new.ttl_s, new.expires_at_ms), (None, None));
}

#[test]
fn patches_cannot_grow_the_environment_beyond_its_limit() {
    let set = |name: &str| {
        let env = [(name.to_owned(), Some("x".repeat(100_000)))].into();
        Patch { env: EnvironmentChange::parse(env).unwrap(), ..Patch::default() }
    };
    let body = RecordBody::plan(&config(), SandboxSpec::default()).unwrap();
    let body = body.patched(&config(), set("A")).unwrap();
    let error = body.patched(&config(), set("B")).unwrap_err();
    assert_eq!(error.to_string(), "env: 200006 bytes, at most 131072");
    assert!(body.patched(&config(), set("A")).is_ok());
}

#[test]
fn a_body_that_does_not_read_is_seen_as_failed() {
    let row = |state: &str, body: &str| isolet_store::SandboxRow {
        name: "n".into(),
        tenant: "t".into(),
        id: "i".into(),
        slot: 3,
        state: state.into(),
        body: body.into(),
    };
    let record = Record::read(&config(), row("running", "{")).unwrap();
    assert_eq!((record.state, record.slot), (State::Failed, 3));
    assert_eq!(
        Record::read(&config(), row("destroying", "{\"v\":9}")).unwrap().state,
        State::Destroying
    );
    let mut stranger = row("running", "{}");
    stranger.tenant = "../x".into();
    assert!(Record::read(&config(), stranger).is_err());
    let mut elsewhere = row("destroying", "{}");
    elsewhere.name = "../../mysql".into();
    assert!(Record::read(&config(), elsewhere).is_err());
    let mut of_host = row("sleeping", "{}");
    of_host.slot = 36_864;
    assert!(Record::read(&config(), of_host).is_err());
}

/// A forged record made the server move the files of a sandbox to any place, delete any directory, and
/// show files of the host to a tenant.
///
/// Promises: F51.
#[test]
fn a_record_with_forged_places_is_read_as_failed() {
    let layer = format!("layers/{}/tree", "0".repeat(64));
    let root = |layers: Value, workspace: Value| {
        let user = serde_json::json!({"uid": 0, "gid": 0, "name": "root", "home": "/root"});
        serde_json::json!({"layers": layers, "env": {}, "cwd": null, "user": user, "workspace": workspace})
    };
    let read = |field: &str, value: Value| {
        let mut body = RecordBody::plan(&config(), SandboxSpec::default()).unwrap();
        body.id_base = Some(isolet_jail::FILES_ID_BASE);
        let mut body = serde_json::to_value(&body).unwrap();
        body[field] = value;
        let row = isolet_store::SandboxRow {
            name: "n".into(),
            tenant: "t".into(),
            id: "i".into(),
            slot: 3,
            state: "sleeping".into(),
            body: body.to_string(),
        };
        Record::read(&config(), row).unwrap()
    };
    let good = [
        ("superseded", "a_b.c--1700000000000".into()),
        ("restore", crate::model::ids::random().into()),
        ("root", root(serde_json::json!([layer, "host"]), Value::Null)),
        (
            "root",
            root(serde_json::json!(["frames/2-own", layer]), format!("{layer}/workspace").into()),
        ),
    ];
    for (field, value) in good {
        assert_eq!(read(field, value.clone()).state, State::Sleeping, "{field} {value}");
    }
    let bad = [
        ("superseded", "/etc/cron.d/x-1".into()),
        ("superseded", "../../etc-1".into()),
        ("superseded", "a".into()),
        ("superseded", "..".into()),
        ("restore", "/etc".into()),
        ("restore", "../trash".into()),
        ("restore", "".into()),
        ("root", root(serde_json::json!(["/root"]), Value::Null)),
        ("root", root(serde_json::json!([format!("{layer}/etc/link")]), Value::Null)),
        ("root", root(serde_json::json!(["host", layer]), Value::Null)),
        ("root", root(serde_json::json!([]), Value::Null)),
        ("root", root(serde_json::json!([layer]), "/root".into())),
        ("root", root(serde_json::json!([layer]), format!("{layer}/../../../..").into())),
        ("root", root(serde_json::json!(["host"]), format!("{layer}/workspace").into())),
    ];
    for (field, value) in bad {
        let read = read(field, value.clone());
        let cause = read.body.cause.as_deref();
        assert_eq!((read.state, cause), (State::Failed, Some(UNREAD)), "{field} {value}");
    }
}

/// Promises: F51.
#[test]
fn a_snapshot_with_a_forged_name_is_refused() {
    let row = |name: &str| isolet_store::SnapshotRow {
        name: name.into(),
        tenant: "t".into(),
        id: "s".into(),
        body: "{}".into(),
    };
    let read = |name: &str| snapshot::SnapshotRecord::read(row(name), 0).unwrap_err();
    assert!(read("abc").contains("missing field"), "{}", read("abc"));
    for name in ["../../mysql", "/etc", "", ".", "a/b"] {
        assert!(read(name).ends_with("is invalid"), "{name}: {}", read(name));
    }
}

#[test]
fn files_keep_the_ids_that_they_have_on_disk() {
    let read = |id_base: Option<i64>, v: u32| {
        let body = RecordBody::plan(&config(), SandboxSpec::default()).unwrap();
        let mut body = serde_json::to_value(&body).unwrap();
        body["v"] = v.into();
        if let Some(base) = id_base {
            body["id_base"] = base.into();
        }
        let row = isolet_store::SandboxRow {
            name: "n".into(),
            tenant: "t".into(),
            id: "i".into(),
            slot: 3,
            state: "sleeping".into(),
            body: body.to_string(),
        };
        Record::read(&config(), row)
    };
    let of_slot = |slot| isolet_jail::first_id(isolet_jail::UID_BASE, slot);
    assert!(read(None, VERSION).is_err(), "a record says which ids its files have");
    assert_eq!(read(Some(0), VERSION).unwrap().body.id_base, Some(0));
    let of_another = of_slot(7).map(i64::from);
    assert_eq!(read(of_another, VERSION).unwrap().body.id_base, of_slot(7));
    assert!(read(Some(1000), VERSION).is_err(), "ids of users of the host");
    assert_eq!(read(Some(-1), VERSION).unwrap().state, State::Failed);
    assert_eq!(read(Some(0), VERSION + 1).unwrap().state, State::Failed, "of another version");
}

/// Promises: Q12.
#[test]
fn a_record_reads_as_it_was_written() {
    let deny = ["*.bad.example:443".to_owned()];
    let network = Some(Network::rules(&["*".to_owned()], &deny).unwrap());
    let spec = SandboxSpec { ttl_s: Some(9), network, ..SandboxSpec::default() };
    let mut body = RecordBody::plan(&config(), spec).unwrap();
    body.id_base = Some(isolet_jail::FILES_ID_BASE);
    let record = Record {
        name: "n".into(),
        tenant: TenantId::parse("t").unwrap(),
        id: SandboxId::parse("a_b.c-").unwrap(),
        slot: 1,
        state: State::Running,
        agent_version: None,
        body,
    };
    assert_eq!(Record::read(&config(), record.row().unwrap()).unwrap(), record);
    let mut paused = record.clone();
    paused.state = State::Paused;
    let row = paused.row().unwrap();
    assert_eq!(row.state, "paused");
    assert_eq!(Record::read(&config(), row).unwrap(), paused);
    paused.state = State::Running;
    assert_eq!(paused, record);
}
