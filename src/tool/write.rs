//! `write`: a whole file, with the directories above it.
//!
//! Also what `edit` shares with it: a file that changed since the model saw it is not overwritten. Deliberately absent:
//! appending.

use std::collections::HashMap;
use std::fs::Metadata;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use serde_json::json;

use super::diff::Before;
use super::lsp::Servers;
use super::path::Place;
use super::{Answer, Input, Running, Scope, Tool, diff, input, path};
use crate::model::message::ToolSpec;
use crate::model::rule::Subject;
use crate::model::tool_name::ToolName;

/// More than this is no text that is compared line by line.
const COMPARED: u64 = 5 * 1024 * 1024;

pub(super) const BYTE_ORDER_MARK: &str = "\u{feff}";

/// Told of a change, language servers that run say what it broke.
#[derive(Debug, Default)]
pub(crate) struct Write {
    pub(super) servers: Arc<Servers>,
}

impl Tool for Write {
    fn name(&self) -> ToolName {
        ToolName::Write
    }

    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: ToolName::Write.as_str(),
            description: "Write a whole file of the workspace; directories are made. For a change in a file use edit."
                .to_owned(),
            input: json!({
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "Relative to the workspace, or absolute inside it"},
                    "content": {"type": "string", "description": "All that will be in the file"}
                },
                "required": ["path", "content"]
            }),
        }
    }

    fn subject(&self, input: &Input, scope: &Scope) -> Subject {
        input::text(input, "path").map_or(Subject::None, |path| path::subject(scope, path))
    }

    fn preview(&self, input: &Input, scope: &Scope) -> Option<String> {
        plan(input, scope, &scope.seen()).ok()?.diff()
    }

    fn run<'a>(&'a self, input: Input, scope: &'a Scope) -> Running<'a> {
        Box::pin(async move {
            let made = {
                let mut seen = scope.seen();
                plan(&input, scope, &seen).and_then(|change| Ok((change.make(&mut seen)?, change)))
            };
            match made {
                Ok((answer, change)) => self.servers.with_new_errors(answer, &change, scope).await,
                Err(correction) => correction,
            }
        })
    }
}

/// What the call would do. Nothing is written yet.
fn plan(input: &Input, scope: &Scope, seen: &Seen) -> Result<Change, Answer> {
    let name = input::text(input, "path")?;
    let content = input::text(input, "content")?;
    if name.ends_with('/') {
        return Err(Answer::correction(format!("`{name}` names a directory; write a file in it and it is made")));
    }
    let place = path::locate(scope, ToolName::Write, name)?;
    let (how, before) = match place.metadata() {
        Err(_) => ("a new file", Before::Absent),
        Ok(metadata) => {
            refuse_stale(seen, &place, &metadata)?;
            let known = seen.contains_key(&place.absolute());
            let how = if known { "replaced" } else { "replaced; you had not read it before" };
            (how, content_of(&place, metadata.len())?)
        }
    };
    let marked = matches!(&before, Before::Text(text) if text.starts_with(BYTE_ORDER_MARK));
    let mark = if marked && !content.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK } else { "" };
    let characters = crate::text::count(content.chars().count(), "character", "characters");
    let said = format!("Wrote `{}` ({characters}, {how})", place.shown());
    Ok(Change { place, before, after: format!("{mark}{content}"), said })
}

/// What is in a file now, as far as it is compared. What is no regular file is refused.
fn content_of(place: &Place, length: u64) -> Result<Before, Answer> {
    let mut bytes = Vec::new();
    let read = place.open()?.take(COMPARED + 1).read_to_end(&mut bytes);
    read.map_err(|error| Answer::correction(format!("`{}` cannot be read: {error}", place.shown())))?;
    if bytes.len() as u64 > COMPARED {
        return Ok(Before::Other { bytes: length });
    }
    Ok(String::from_utf8(bytes)
        .map_or_else(|error| Before::Other { bytes: error.as_bytes().len() as u64 }, Before::Text))
}

/// A change of one file that could be made now.
pub(super) struct Change {
    pub(super) place: Place,
    pub(super) before: Before,
    pub(super) after: String,
    /// What the model is told when it is made.
    pub(super) said: String,
}

impl Change {
    pub(super) fn diff(&self) -> Option<String> {
        diff::unified(&self.place.shown(), &self.before, &self.after)
    }

    /// Writes the file and remembers it as seen.
    pub(super) fn make(&self, seen: &mut Seen) -> Result<Answer, Answer> {
        let place = &self.place;
        place.root.write(&place.relative, self.after.as_bytes()).map_err(|error| {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
            Answer::correction(format!("{error}{cause}"))
        })?;
        if let Ok(modified) = place.metadata().and_then(|metadata| metadata.modified()) {
            seen.insert(place.absolute(), modified);
        }
        Ok(Answer { diff: self.diff(), ..Answer::done(self.said.clone()).changing(&place.relative) })
    }
}

pub(super) type Seen = HashMap<PathBuf, SystemTime>;

/// Refuses a file that is not as the model last saw it.
pub(super) fn refuse_stale(seen: &Seen, place: &Place, metadata: &Metadata) -> Result<(), Answer> {
    match (seen.get(&place.absolute()), metadata.modified()) {
        (Some(known), Ok(now)) if *known != now => Err(Answer::correction(format!(
            "`{}` has changed since you last saw it; read it again first. Nothing was changed",
            place.shown()
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, input};
    use super::*;

    fn run(fixture: &Fixture, path: &str, content: &str) -> Answer {
        fixture.run(&Write::default(), input(json!({"path": path, "content": content})))
    }

    #[test]
    fn a_file_is_written_with_its_directories() {
        let fixture = Fixture::new();
        let answer = run(&fixture, "new/deep/a.md", "é\r\n");
        assert_eq!(answer.text, "Wrote `new/deep/a.md` (3 characters, a new file)");
        assert_eq!(answer.changed, ["new/deep/a.md"]);
        assert_eq!(fixture.bytes("new/deep/a.md"), "é\r\n".as_bytes());
        assert!(run(&fixture, "new/deep/a.md", "").text.contains("replaced)"), "what was written has been seen");
    }

    #[test]
    fn nothing_is_written_outside() {
        let fixture = Fixture::new();
        let outside = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(outside.path(), fixture.path("out")).unwrap();
        std::os::unix::fs::symlink(outside.path().join("new"), fixture.path("dangling")).unwrap();
        fixture.write("file", "");
        fixture.write("dir/x", "");
        for path in [
            "out/a.txt",
            "dangling",
            "dangling/x",
            "sub/../../x",
            "dir/../../x",
            "/tmp/decode-x",
            "file/x",
            "dir",
            "dir/",
            "",
        ] {
            let answer = run(&fixture, path, "x");
            assert!(!answer.ok && answer.changed.is_empty(), "{path}: {answer:?}");
        }
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_link_inside_is_written_through() {
        let fixture = Fixture::new();
        fixture.write("data/memory/x", "");
        std::os::unix::fs::symlink("data/memory", fixture.path("memory")).unwrap();
        let answer = run(&fixture, "memory/new/deep/a.md", "x");
        assert_eq!(answer.changed, ["data/memory/new/deep/a.md"]);
        assert!(fixture.path("memory").is_symlink());
    }

    #[test]
    fn a_byte_order_mark_stays() {
        let fixture = Fixture::new();
        fixture.write("a", "\u{feff}old\n");
        run(&fixture, "a", "new\n");
        assert_eq!(fixture.bytes("a"), "\u{feff}new\n".as_bytes());
        run(&fixture, "b", "new\n");
        assert_eq!(fixture.bytes("b"), b"new\n");
    }

    #[test]
    fn what_a_write_changes_is_shown_before_and_after_it() {
        let fixture = Fixture::new();
        let preview = |path: &str, content: &str| {
            Write::default().preview(&input(json!({"path": path, "content": content})), &fixture.scope)
        };
        let before = preview("new/a", "x\n").unwrap();
        assert_eq!(before, "--- /dev/null\n+++ b/new/a\n@@ -0,0 +1 @@\n+x\n");
        assert!(!fixture.path("new").exists(), "nothing is made for a preview");
        assert_eq!(run(&fixture, "new/a", "x\n").diff, Some(before));
        let again = run(&fixture, "new/a", "y\n").diff.unwrap();
        assert!(again.contains("-x\n+y\n"), "{again}");
        fixture.write("bin", b"\xff\0");
        assert!(run(&fixture, "bin", "y\n").diff.unwrap().contains("(not shown: 2 bytes)"));
        assert_eq!(preview("../a", "x"), None);
    }

    #[test]
    fn a_denied_path_is_not_written() {
        let mut fixture = Fixture::new();
        fixture.scope.deny = vec!["edit(*.lock)".parse().unwrap()];
        assert!(!run(&fixture, "Cargo.lock", "x").ok);
        assert!(!fixture.path("Cargo.lock").exists());
    }
}
