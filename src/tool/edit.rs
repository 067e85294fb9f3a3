//! `edit`: pieces of a file replaced, all of them or none.
//!
//! Deliberately absent: how a piece is found (`patch.rs`), and files that are no UTF-8 text.

use std::io::Read;
use std::sync::Arc;

use serde_json::{Value, json};

use super::diff::Before;
use super::lsp::Servers;
use super::patch::{Fit, Occurrences, Patch};
use super::write::{self, BYTE_ORDER_MARK, Change, Seen};
use super::{Answer, Input, Running, Scope, Tool, input, path};
use crate::model::message::ToolSpec;
use crate::model::rule::Subject;
use crate::model::tool_name::ToolName;

/// Larger files are no source that is edited by hand.
const EDITED: u64 = 5 * 1024 * 1024;

/// Told of a change, language servers that run say what it broke.
#[derive(Debug, Default)]
pub(crate) struct Edit {
    pub(super) servers: Arc<Servers>,
}

impl Tool for Edit {
    fn name(&self) -> ToolName {
        ToolName::Edit
    }

    fn spec(&self) -> ToolSpec {
        let one = json!({
            "old_string": {"type": "string", "description": "The text to replace, as it is in the file; must be there once"},
            "new_string": {"type": "string", "description": "What stands there afterwards"},
            "replace_all": {"type": "boolean", "description": "Replace it wherever it is"}
        });
        ToolSpec {
            name: ToolName::Edit.as_str(),
            description:
                "Replace text in a file of the workspace: old_string by new_string, or several at once with edits, \
                one after the other, all or none."
                    .to_owned(),
            input: json!({
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "Relative to the workspace, or absolute inside it"},
                    "old_string": one["old_string"], "new_string": one["new_string"], "replace_all": one["replace_all"],
                    "edits": {
                        "type": "array",
                        "items": {"type": "object", "properties": one, "required": ["old_string", "new_string"]}
                    }
                },
                "required": ["path"]
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
    let patches = patches(input)?;
    let place = path::locate(scope, ToolName::Edit, name)?;
    let file = place.open()?;
    let metadata = file.metadata().map_err(|error| Answer::correction(format!("`{name}` cannot be read: {error}")))?;
    write::refuse_stale(seen, &place, &metadata)?;
    if metadata.len() > EDITED {
        return Err(Answer::correction(format!("`{name}` is too large to edit: {} bytes", metadata.len())));
    }
    let mut bytes = Vec::new();
    file.take(EDITED)
        .read_to_end(&mut bytes)
        .map_err(|error| Answer::correction(format!("`{name}` cannot be read: {error}")))?;
    let text = String::from_utf8(bytes).map_err(|_| {
        Answer::correction(format!(
            "`{name}` is not UTF-8 text and was left as it is; change it with a command that knows its encoding"
        ))
    })?;
    let (mark, body) = text.strip_prefix(BYTE_ORDER_MARK).map_or(("", text.as_str()), |body| (BYTE_ORDER_MARK, body));
    let (edited, notes) = apply(body, &patches)?;
    if edited == body {
        return Err(Answer::correction(
            "the edits undo each other: nothing would change, and the file was left as it is",
        ));
    }
    let said = format!("Edited `{}`: {}", place.shown(), notes.join("; "));
    let after = format!("{mark}{edited}");
    Ok(Change { place, before: Before::Text(text), after, said })
}

/// The edited text, and what to tell of each edit.
fn apply(body: &str, patches: &[Patch]) -> Result<(String, Vec<String>), Answer> {
    let mut text = body.to_owned();
    let mut notes = Vec::new();
    for (at, patch) in patches.iter().enumerate() {
        let patched = patch.apply(&text).map_err(|miss| {
            let which =
                if patches.len() > 1 { format!("edit {} of {}: ", at + 1, patches.len()) } else { String::new() };
            Answer::correction(format!("{which}{miss}. Nothing was changed"))
        })?;
        let lines: Vec<String> = patched.lines.iter().take(10).map(usize::to_string).collect();
        let more = if patched.lines.len() > 10 { ", …" } else { "" };
        let loosely =
            if patched.fit == Fit::WhiteSpace { " (found with other white space; check the indentation)" } else { "" };
        let places = crate::text::count(patched.lines.len(), "place", "places");
        notes.push(format!("{places}, line {}{more}{loosely}", lines.join(", ")));
        text = patched.text;
    }
    Ok((text, notes))
}

fn patches(input: &Input) -> Result<Vec<Patch>, Answer> {
    match (input.get("edits"), input.contains_key("old_string")) {
        (None | Some(Value::Null), _) => Ok(vec![patch(input)?]),
        (Some(Value::Array(list)), _) if list.is_empty() && input.contains_key("old_string") => Ok(vec![patch(input)?]),
        (Some(_), true) => Err(Answer::correction("give either old_string and new_string or edits, not both")),
        (Some(Value::Array(list)), false) if !list.is_empty() => list
            .iter()
            .enumerate()
            .map(|(at, item)| match item {
                Value::Object(item) => {
                    patch(item).map_err(|wrong| Answer::correction(format!("edit {}: {}", at + 1, wrong.text)))
                }
                _ => Err(Answer::correction(format!("edit {} is no object with old_string and new_string", at + 1))),
            })
            .collect(),
        (Some(_), false) => Err(Answer::correction("`edits` must be a list of objects with old_string and new_string")),
    }
}

fn patch(input: &Input) -> Result<Patch, Answer> {
    let occurrences = if input::flag(input, "replace_all")? { Occurrences::All } else { Occurrences::One };
    let old = input::text(input, "old_string")?;
    let old = old.strip_prefix(BYTE_ORDER_MARK).unwrap_or(old);
    Ok(Patch { old: old.to_owned(), new: input::text(input, "new_string")?.to_owned(), occurrences })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, input};
    use super::super::read::Read as ReadTool;
    use super::*;

    fn run(fixture: &Fixture, arguments: Value) -> Answer {
        fixture.run(&Edit::default(), input(arguments))
    }

    #[test]
    fn a_byte_order_mark_stays() {
        let fixture = Fixture::new();
        for (name, before, after) in
            [("a", "\u{feff}hello\n", "\u{feff}bye\n"), ("b", "\u{feff}hello\r\nx\r\n", "\u{feff}bye\r\nx\r\n")]
        {
            fixture.write(name, before);
            let answer = run(&fixture, json!({"path": name, "old_string": "hello", "new_string": "bye"}));
            assert!(answer.ok && answer.changed == [name], "{answer:?}");
            assert_eq!(fixture.bytes(name), after.as_bytes());
        }
    }

    #[test]
    fn every_byte_that_is_not_replaced_stays() {
        for (before, edits, after) in [
            ("alpha\nbeta\r\ngamma\n", &[("alpha\nbeta", "ALPHA\nBETA"), ("BETA\n", "B\n")][..], "ALPHA\nB\r\ngamma\n"),
            ("a\r\nb\nc", &[("c", "C")], "a\r\nb\nC"),
            ("a x\n", &[("x", "$& $1 ${name} $$ \\1 \\0")], "a $& $1 ${name} $$ \\1 \\0\n"),
        ] {
            let fixture = Fixture::new();
            fixture.write("f", before);
            for (old, new) in edits {
                let answer = run(&fixture, json!({"path": "f", "old_string": old, "new_string": new}));
                assert!(answer.ok, "{before:?} {old:?}: {answer:?}");
            }
            assert_eq!(fixture.bytes("f"), after.as_bytes());
        }
        let fixture = Fixture::new();
        fixture.write("f", "x y x\n");
        run(&fixture, json!({"path": "f", "old_string": "x", "new_string": "$1", "replace_all": true}));
        assert_eq!(fixture.bytes("f"), b"$1 y $1\n");
    }

    #[test]
    fn a_link_that_leads_outside_is_neither_read_nor_edited() {
        let fixture = Fixture::new();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("a.txt"), "one\n").unwrap();
        std::os::unix::fs::symlink(outside.path(), fixture.path("out")).unwrap();
        fixture.write("sub/x", "");
        for path in ["out/a.txt", "sub/../../x"] {
            let read = fixture.run(&ReadTool, input(json!({"path": path})));
            let edited = run(&fixture, json!({"path": path, "old_string": "one", "new_string": "two"}));
            assert!(!read.ok && !edited.ok && read.text.contains("outside"), "{read:?} {edited:?}");
            assert_eq!(
                Edit::default()
                    .preview(&input(json!({"path": path, "old_string": "one", "new_string": "2"})), &fixture.scope),
                None
            );
        }
        assert_eq!(std::fs::read(outside.path().join("a.txt")).unwrap(), b"one\n");
    }

    #[test]
    fn a_file_that_is_no_text_is_left_as_it_is() {
        let fixture = Fixture::new();
        let bytes = b"const x=1; // caf\xe9\n";
        fixture.write("latin.js", bytes);
        let answer = run(&fixture, json!({"path": "latin.js", "old_string": "x=1", "new_string": "x=2"}));
        assert!(!answer.ok && answer.text.contains("not UTF-8"), "{answer:?}");
        assert_eq!(fixture.bytes("latin.js"), bytes);
    }

    #[test]
    fn several_edits_are_made_or_none() {
        let fixture = Fixture::new();
        fixture.write("a", "one\ntwo\nthree\n");
        let edit = |old: &str, new: &str| json!({"old_string": old, "new_string": new});
        let bad =
            run(&fixture, json!({"path": "a", "edits": [edit("one", "1"), edit("none", "x"), edit("three", "3")]}));
        assert!(!bad.ok && bad.text.contains("edit 2 of 3") && bad.text.contains("Nothing was changed"), "{bad:?}");
        let undone = run(&fixture, json!({"path": "a", "edits": [edit("one", "two2"), edit("two2", "one")]}));
        assert!(!undone.ok && undone.text.contains("undo each other"), "{undone:?}");
        assert_eq!(fixture.bytes("a"), b"one\ntwo\nthree\n");
        let good = run(&fixture, json!({"path": "a", "edits": [edit("one", "1"), edit("three", "3")]}));
        assert!(good.ok, "{good:?}");
        assert_eq!(fixture.bytes("a"), b"1\ntwo\n3\n");
    }

    #[test]
    fn wrong_arguments_are_corrected_and_change_nothing() {
        let fixture = Fixture::new();
        fixture.write("a", "abc");
        for arguments in [
            json!({"path": "a"}),
            json!({"path": "a", "old_string": "a"}),
            json!({"path": "a", "old_string": "", "new_string": "x", "replace_all": true}),
            json!({"path": "a", "old_string": "", "new_string": "x", "replace_all": false}),
            json!({"path": "a", "old_string": "a", "new_string": "a", "replace_all": true}),
            json!({"path": "a", "old_string": "a", "new_string": "a"}),
            json!({"path": "a", "edits": []}),
            json!({"path": "a", "edits": ["x"]}),
            json!({"path": "a", "edits": "x"}),
            json!({"path": "a", "old_string": "a", "new_string": "b", "edits": [{"old_string": "a", "new_string": "b"}]}),
            json!({"path": "none", "old_string": "a", "new_string": "b"}),
            json!({"path": "../a", "old_string": "a", "new_string": "b"}),
            json!({"path": ".", "old_string": "a", "new_string": "b"}),
        ] {
            assert!(!run(&fixture, arguments.clone()).ok, "{arguments}");
        }
        assert_eq!(fixture.bytes("a"), b"abc");
    }

    #[test]
    fn a_file_that_changed_since_it_was_read_is_not_edited() {
        let fixture = Fixture::new();
        fixture.write("a", "one\n");
        assert!(fixture.run(&ReadTool, input(json!({"path": "a"}))).ok);
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
        fixture.write("a", "one and more\n");
        std::fs::File::options().write(true).open(fixture.path("a")).unwrap().set_modified(later).unwrap();
        let edit = json!({"path": "a", "old_string": "one", "new_string": "1"});
        let stale = run(&fixture, edit.clone());
        assert!(!stale.ok && stale.text.contains("has changed since"), "{stale:?}");
        assert!(fixture.run(&ReadTool, input(json!({"path": "a"}))).ok);
        assert!(run(&fixture, edit).ok);
        assert_eq!(fixture.bytes("a"), b"1 and more\n");
    }

    #[test]
    fn what_an_edit_changes_is_shown_before_and_after_it() {
        let fixture = Fixture::new();
        fixture.write("a", "\u{feff}one\r\ntwo\r\n");
        let arguments = json!({"path": "a", "old_string": "two", "new_string": "2"});
        let before = Edit::default().preview(&input(arguments.clone()), &fixture.scope).unwrap();
        assert!(before.contains("-two\u{240d}\n+2\u{240d}\n"), "{before}");
        assert_eq!(fixture.bytes("a"), "\u{feff}one\r\ntwo\r\n".as_bytes(), "a preview changes nothing");
        assert_eq!(run(&fixture, arguments.clone()).diff, Some(before));
        assert_eq!(Edit::default().preview(&input(arguments), &fixture.scope), None, "it is not there any more");
    }

    #[test]
    fn two_edits_of_one_turn_both_land() {
        let fixture = Fixture::new();
        fixture.write("a", "one two\n");
        assert!(fixture.run(&ReadTool, input(json!({"path": "a"}))).ok);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let tool = Edit::default();
        let edit = |old: &str, new: &str| {
            tool.run(input(json!({"path": "a", "old_string": old, "new_string": new})), &fixture.scope)
        };
        let (first, second) = runtime.block_on(async { tokio::join!(edit("one", "1"), edit("two", "2")) });
        assert!(first.ok && second.ok, "{first:?} {second:?}");
        assert_eq!(fixture.bytes("a"), b"1 2\n");
    }
}
