//! `isolet rm`: deletes sandboxes.

use crate::client::args::complete;
use crate::client::args::confirm::confirmed;
use crate::client::args::filter::{Filter, filter};
use crate::client::args::format::OutputFormat;
use crate::client::list::{pretty, sandboxes, text};
use crate::client::output::{print_message, sanitize, write};
use crate::client::server_error::ServerError;
use crate::client::{ApiClient, id};
use anyhow::Result;
use clap::Parser;
use hyper::Method;
use serde_json::Value;
use std::process::ExitCode;

/// The most ids that a question shows.
const IDS_SHOWN_MAX: usize = 10;

/// Arguments of `isolet rm`.
#[derive(Parser)]
#[command(after_help = "\
Continues if one sandbox cannot be deleted, and exits with 1 then. If a sandbox was created with
--snapshot-on-destroy, a snapshot is taken first, and its id is printed. --all and --filter ask before
they delete; in a script, --yes answers.

  isolet rm demo build-7
  isolet rm --force demo
  isolet rm --all
  isolet rm --filter state=failed --filter 'id=build-*' --yes")]
pub(crate) struct Args {
    /// Ids of the sandboxes to delete
    #[arg(
        required_unless_present_any = ["all", "filter"],
        conflicts_with_all = ["all", "filter"],
        value_parser = id,
        add = complete::sandboxes()
    )]
    ids: Vec<String>,
    /// Delete all sandboxes of the tenant
    #[arg(long, short, conflicts_with = "filter")]
    all: bool,
    /// Delete the sandboxes that match; see `isolet ls --help`. Repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = filter)]
    filter: Vec<Filter>,
    /// Do not ask before deleting
    #[arg(long, short)]
    yes: bool,
    /// Delete them without the snapshot that --snapshot-on-destroy takes
    #[arg(long, short)]
    force: bool,
    #[command(flatten)]
    format: OutputFormat,
}

/// Runs `isolet rm`. Continues if one sandbox cannot be deleted.
pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let server = ApiClient::find()?;
    let mut ids = args.ids;
    if ids.is_empty() {
        let all = sandboxes(&server, &args.filter).await?;
        ids = all.iter().map(|one| text(&one["id"])).collect();
        if ids.is_empty() {
            print_message("no sandbox to delete");
        } else if !args.yes && !confirmed(&question(&ids))? {
            print_message("nothing was deleted");
            return Ok(ExitCode::FAILURE);
        }
    }
    let mut code = ExitCode::SUCCESS;
    let mut deleted: Vec<Value> = Vec::new();
    let query = if args.force { "?force=true" } else { "" };
    for id in ids {
        match server.json(Method::DELETE, &format!("/v1/sandboxes/{id}{query}")).await {
            Ok((answer, _)) if args.format.is_json() => deleted.push(answer),
            Ok((answer, _)) => {
                if let Some(snapshot) = answer["snapshot"].as_str() {
                    write(true, format!("{}\n", sanitize(snapshot)).as_bytes())?;
                }
            }
            Err(error) if error.is::<ServerError>() => {
                print_message(error);
                code = ExitCode::FAILURE;
            }
            Err(error) => {
                return Err(error.context(format!("sandbox {id} was not deleted")));
            }
        }
    }
    if args.format.is_json() {
        pretty(&deleted)?;
    }
    Ok(code)
}

/// Asks for the deletion of these sandboxes.
fn question(ids: &[String]) -> String {
    let shown: Vec<&str> = ids.iter().take(IDS_SHOWN_MAX).map(String::as_str).collect();
    let more = match ids.len().saturating_sub(shown.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let what = match ids.len() {
        1 => "sandbox with its".to_owned(),
        count => format!("{count} sandboxes with their"),
    };
    format!("Delete {what} files: {}{more}?", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_or_all_or_a_filter_are_needed_and_exclude_each_other() {
        for wrong in
            [&[][..], &["a", "--all"], &["a", "--filter", "id=b"], &["--all", "--filter", "id=b"]]
        {
            let words = ["rm"].iter().chain(wrong);
            assert!(Args::try_parse_from(words).is_err(), "{wrong:?}");
        }
        assert!(Args::try_parse_from(["rm", "--all", "-y"]).unwrap().all);
    }

    #[test]
    fn the_question_names_what_will_be_deleted() {
        let ids: Vec<String> = (0..12).map(|n| format!("s{n}")).collect();
        let asked = question(&ids);
        assert!(asked.starts_with("Delete 12 sandboxes with their files: s0, s1"), "{asked}");
        assert!(asked.ends_with("s9 and 2 more?"), "{asked}");
        assert_eq!(question(&ids[..1]), "Delete sandbox with its files: s0?");
    }
}
