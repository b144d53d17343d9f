//! `isolet keys rotate`: replaces a key that others may know.

use crate::admin::client::DataAccess;
use crate::admin::{AdminRequest, AdminResponse};
use crate::client::output::{print_message, write};
use crate::serve;
use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use isolet_sandbox::audit::AuditDirectory;
use isolet_sandbox::{KeyDigest, Keys, NewKey, SandboxId, TenantId, offline};
use std::path::Path;
use std::process::ExitCode;

/// Arguments of `isolet keys rotate`.
#[derive(Parser)]
#[command(after_help = "\
  isolet keys rotate api key_0123456789abcdef
  isolet keys rotate links --tenant acme
  isolet keys rotate audit

Tickets have no stored key: they are valid for at most 300 s, and a restart of the server ends all.
Credentials are values of tenants: isolet network ID --credential-add sets another value.")]
pub(super) struct Args {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Subcommand)]
enum Kind {
    /// Create an API key like an existing one, and revoke the existing one. Prints the new key once.
    Api {
        /// Id of the key, from `isolet keys ls`
        id: String,
    },
    /// Give exposed ports other secrets. All their links are invalid at once.
    Links {
        /// Rotate only links of this tenant
        #[arg(long)]
        tenant: Option<TenantId>,
        /// Rotate only links of this sandbox
        #[arg(long, value_name = "ID", requires = "tenant")]
        sandbox: Option<SandboxId>,
    },
    /// Sign audit logs with another key. The old key verifies earlier entries only.
    Audit,
}

pub(super) fn run(args: &Args, data: &Path) -> Result<ExitCode> {
    match &args.kind {
        Kind::Api { id } => rotate_api_key(data, id)?,
        Kind::Links { tenant, sandbox } => {
            let ports = rotate_links(data, tenant.as_ref(), sandbox.as_ref())?;
            print_message(format_args!("links to {ports} ports are invalid now"));
        }
        Kind::Audit => {
            let Rotated { from, to, logs } = rotate_audit_key(data)?;
            print_message(format_args!(
                "{logs} audit logs continue with the key {to}; {from} verifies earlier entries only"
            ));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn rotate_api_key(data: &Path, id: &str) -> Result<()> {
    let keys = Keys::open(&data.join("isolet.db"))?;
    let all = keys.list()?;
    let old = all.iter().find(|key| key.id == id && key.revoked_at_ms.is_none());
    let Some(old) = old else { bail!("no active key {id}; see `isolet keys ls`") };
    let new = NewKey {
        tenant: old.tenant.clone(),
        label: old.label.clone(),
        read_only: old.read_only,
        expires_at_ms: old.expires_at_ms,
        ..NewKey::default()
    };
    let file = data.join("key");
    let stored = std::fs::read_to_string(&file).unwrap_or_default();
    let grant = keys.grant_of(&KeyDigest::of(stored.trim()))?;
    let (key, secret) = keys.add(&new)?;
    let replaces_file = grant.is_some_and(|grant| grant.key == id);
    // A new key that nobody has read would stay valid, and the old one too.
    if let Err(error) = write(true, format!("{secret}\n").as_bytes()) {
        keys.revoke(&key.id)?;
        return Err(error.context(format!("{id} was not replaced: the new key was not read")));
    }
    if replaces_file {
        serve::keep(&file, &secret).with_context(|| format!("cannot write {}", file.display()))?;
    }
    keys.revoke(id)?;
    print_message(format_args!(
        "this is {}, which replaces {id}; it will not be shown again",
        key.id
    ));
    Ok(())
}

fn rotate_links(
    data: &Path,
    tenant: Option<&TenantId>,
    sandbox: Option<&SandboxId>,
) -> Result<u64> {
    let tenant = tenant.map(|id| id.as_str().to_owned());
    let sandbox = sandbox.map(|id| id.as_str().to_owned());
    match DataAccess::open(data)? {
        DataAccess::Server(mut server) => {
            match server.ask(&AdminRequest::RotateLinks { tenant, sandbox })? {
                AdminResponse::LinksRotated { ports } => Ok(ports as u64),
                AdminResponse::Failed { message } => bail!("not all links were rotated: {message}"),
                other => bail!("unexpected answer of the server: {other:?}"),
            }
        }
        DataAccess::Locked(_lock) => {
            if let (Some(tenant), Some(id)) = (&tenant, &sandbox)
                && !offline::has_sandbox(data, tenant, id)?
            {
                bail!("the tenant {tenant} has no sandbox {id}");
            }
            Ok(offline::rotate_links(data, tenant.as_deref(), sandbox.as_deref())?)
        }
    }
}

/// Fingerprints of the keys, and the number of logs.
struct Rotated {
    from: String,
    to: String,
    logs: usize,
}

fn rotate_audit_key(data: &Path) -> Result<Rotated> {
    match DataAccess::open(data)? {
        DataAccess::Server(mut server) => match server.ask(&AdminRequest::RotateAuditKey)? {
            AdminResponse::AuditKeyRotated { from, to, logs } => Ok(Rotated { from, to, logs }),
            AdminResponse::Failed { message } => bail!("the key was not rotated: {message}"),
            other => bail!("unexpected answer of the server: {other:?}"),
        },
        DataAccess::Locked(_lock) => {
            let rotation = AuditDirectory::rotate_key(data)?;
            Ok(Rotated { from: rotation.from, to: rotation.to, logs: rotation.logs })
        }
    }
}
