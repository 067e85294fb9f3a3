//! `write`: a whole file, with the directories above it.
//!
//! Also what `edit` shares with it: a file that changed since the model saw it is not overwritten. Deliberately absent:
//! appending.

use std::collections::HashMap;
use std::fs::Metadata;
use std::path::PathBuf;
use std::time::SystemTime;

use serde_json::json;

use super::path::Place;
use super::{Answer, Input, Running, Scope, Tool, input, path};
use crate::model::message::ToolSpec;
use crate::model::rule::Subject;
use crate::model::tool_name::ToolName;

#[derive(Debug)]
pub(crate) struct Write;

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

    fn run<'a>(&'a self, input: Input, scope: &'a Scope) -> Running<'a> {
        Box::pin(async move { write(&input, scope).unwrap_or_else(|correction| correction) })
    }
}

fn write(input: &Input, scope: &Scope) -> Result<Answer, Answer> {
    let name = input::text(input, "path")?;
    let content = input::text(input, "content")?;
    if name.ends_with('/') {
        return Err(Answer::correction(format!("`{name}` names a directory; write a file in it and it is made")));
    }
    let place = path::locate(scope, ToolName::Write, name)?;
    let mut seen = scope.seen();
    let mut mark = "";
    let how = match place.metadata() {
        Err(_) => "a new file",
        Ok(metadata) => {
            refuse_stale(&seen, &place, &metadata)?;
            let mut start = [0; 3];
            let marked = std::io::Read::read_exact(&mut place.open()?, &mut start).is_ok() && start == *b"\xef\xbb\xbf";
            mark = if marked && !content.starts_with('\u{feff}') { "\u{feff}" } else { "" };
            let known = seen.contains_key(&place.absolute());
            if known { "replaced" } else { "replaced; you had not read it before" }
        }
    };
    replace(&mut seen, &place, format!("{mark}{content}").as_bytes())?;
    let characters = crate::text::count(content.chars().count(), "character", "characters");
    Ok(Answer::done(format!("Wrote `{}` ({characters}, {how})", place.shown())).changing(&place.relative))
}

type Seen = HashMap<PathBuf, SystemTime>;

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

/// Writes the file and remembers it as seen.
pub(super) fn replace(seen: &mut Seen, place: &Place, content: &[u8]) -> Result<(), Answer> {
    place.root.write(&place.relative, content).map_err(|error| {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
        Answer::correction(format!("{error}{cause}"))
    })?;
    if let Ok(modified) = place.metadata().and_then(|metadata| metadata.modified()) {
        seen.insert(place.absolute(), modified);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, input};
    use super::*;

    fn run(fixture: &Fixture, path: &str, content: &str) -> Answer {
        fixture.run(&Write, input(json!({"path": path, "content": content})))
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
    fn a_denied_path_is_not_written() {
        let mut fixture = Fixture::new();
        fixture.scope.deny = vec!["edit(*.lock)".parse().unwrap()];
        assert!(!run(&fixture, "Cargo.lock", "x").ok);
        assert!(!fixture.path("Cargo.lock").exists());
    }
}
