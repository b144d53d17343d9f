//! A tool that replaces text in a file. The write is conditional: if the file changed after it was
//! read, nothing is written.

use crate::api_path;
use crate::call::ApiCall;
use crate::server::McpServer;
use crate::tool_result::{self, ToolResult, failure, success};
use bytes::Bytes;
use http::{Method, header};
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::CallToolResult;
use rmcp::schemars::{self, JsonSchema};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, tool, tool_router};
use serde::Deserialize;

/// Limit on the size of an edited file, in bytes, before and after the edit: the whole file is in
/// memory.
const FILE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Number of lines of matches in an error message.
const LINES_SHOWN_MAX: usize = 10;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EditArgs {
    /// Relative to /workspace, or absolute.
    path: String,
    /// Text to replace, exactly as it is in the file, with all spaces and line feeds. It must occur
    /// once, unless `replace_all` is set.
    old_string: String,
    /// Text to put in its place; empty to delete it.
    new_string: String,
    /// Replace all occurrences.
    replace_all: Option<bool>,
    /// Id of the sandbox; the connection's default sandbox if omitted.
    sandbox: Option<String>,
}

#[tool_router(router = edit, vis = "pub(crate)")]
impl McpServer {
    #[tool(
        description = "Edit a text file: replace an exact string that occurs once, or all occurrences with `replace_all`. Nothing is written if the string does not occur, occurs more often, or the file changes at the same time.",
        annotations(destructive_hint = true, open_world_hint = false)
    )]
    async fn file_edit(
        &self,
        Parameters(edit): Parameters<EditArgs>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let api = self.api_call(&context);
        apply(&api, edit).await.unwrap_or_else(|error| error)
    }
}

async fn apply(api: &ApiCall<'_>, edit: EditArgs) -> ToolResult {
    let path = api_path::file(&api.sandbox(edit.sandbox.clone()), &edit.path);
    // One byte more than the limit, to notice a larger file without reading all of it.
    let range = format!("bytes=0-{FILE_BYTES_MAX}");
    let ranged = [("range", range.as_str())];
    let response =
        api.send(Method::GET, format!("{path}?type=file"), &ranged, Bytes::new()).await?;
    if response.status() == http::StatusCode::RANGE_NOT_SATISFIABLE {
        return Err(failure(format!("{} is empty: use file_write", edit.path)));
    }
    let response = tool_result::require_success(response)?;
    let tag = response.headers().get(header::ETAG).and_then(|tag| tag.to_str().ok());
    let tag = tag.ok_or_else(|| failure("the server did not name the version of the file"))?;
    if response.body().len() > FILE_BYTES_MAX {
        return Err(failure(format!(
            "{} is larger than {FILE_BYTES_MAX} bytes: edit it with shell_run, for example with sed",
            edit.path
        )));
    }
    let text = std::str::from_utf8(response.body())
        .map_err(|_| failure(format!("{} is not UTF-8 text: edit it with shell_run", edit.path)))?;
    let (content, count) = replaced(text, &edit).map_err(failure)?;
    let conditions = [("if-match", tag)];
    api.call(Method::PUT, path, &conditions, Bytes::from(content)).await?;
    let times = if count == 1 { "1 occurrence".to_owned() } else { format!("{count} occurrences") };
    Ok(success(format!("replaced {times} in {}", edit.path)))
}

/// The new content, and the number of replacements.
fn replaced(text: &str, edit: &EditArgs) -> Result<(String, usize), String> {
    let path = &edit.path;
    if edit.old_string.is_empty() {
        return Err("old_string is empty: to write a whole file, use file_write".to_owned());
    }
    if edit.old_string == edit.new_string {
        return Err("old_string and new_string are the same".to_owned());
    }
    let count = text.matches(&edit.old_string).count();
    if count == 0 {
        return Err(format!(
            "old_string does not occur in {path}; nothing was written. Read the file with file_read and copy the text exactly, with its spaces and line feeds"
        ));
    }
    if count > 1 && edit.replace_all != Some(true) {
        return Err(format!(
            "old_string occurs {count} times in {path}, on {}; nothing was written. Add surrounding lines to old_string until it is unique, or set replace_all",
            lines(text, &edit.old_string)
        ));
    }
    let growth = edit.new_string.len().saturating_sub(edit.old_string.len());
    if text.len().saturating_add(growth.saturating_mul(count)) > FILE_BYTES_MAX {
        return Err(format!("{path} would become larger than {FILE_BYTES_MAX} bytes"));
    }
    Ok((text.replace(&edit.old_string, &edit.new_string), count))
}

/// The lines on which `old` begins.
fn lines(text: &str, old: &str) -> String {
    let mut line = 1;
    let mut from = 0;
    let mut all = Vec::new();
    for (at, _) in text.match_indices(old) {
        line += text[from..at].matches('\n').count();
        from = at;
        all.push(line.to_string());
        if all.len() > LINES_SHOWN_MAX {
            all[LINES_SHOWN_MAX] = "…".to_owned();
            break;
        }
    }
    format!("lines {}", all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(old: &str, new: &str, replace_all: bool) -> EditArgs {
        EditArgs {
            path: "f".into(),
            old_string: old.into(),
            new_string: new.into(),
            replace_all: Some(replace_all),
            sandbox: None,
        }
    }

    #[test]
    fn text_is_replaced_only_where_the_caller_meant() {
        let text = "a = 1\nb = 1\n";
        assert_eq!(replaced(text, &edit("b = 1", "b = 2", false)).unwrap().0, "a = 1\nb = 2\n");
        assert_eq!(replaced(text, &edit("1", "", true)).unwrap(), ("a = \nb = \n".into(), 2));
        let ambiguous = replaced(text, &edit("= 1", "= 2", false)).unwrap_err();
        assert!(ambiguous.contains("2 times in f, on lines 1, 2;"), "{ambiguous}");
        assert!(replaced(text, &edit("c", "d", false)).unwrap_err().contains("does not occur"));
        assert!(replaced(text, &edit("", "d", false)).is_err());
        assert!(replaced(text, &edit("a", "a", false)).is_err());
        let many = replaced(&"x\n".repeat(20), &edit("x", "y", false)).unwrap_err();
        assert!(many.contains("20 times") && many.contains("9, 10, …;"), "{many}");
        let large = "y".repeat(FILE_BYTES_MAX);
        assert!(replaced("xx", &edit("x", &large, true)).unwrap_err().contains("larger"));
    }
}
