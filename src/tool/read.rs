//! `read`: lines of a file with their numbers, or a picture.
//!
//! Reads no further than it must and holds no more than it shows. Deliberately absent: notebooks, documents, folders.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde_json::json;

use super::output::{BYTES, LINES};
use super::{Answer, Input, Running, Scope, Tool, image, input, path};
use crate::model::message::ToolSpec;
use crate::model::rule::Subject;
use crate::model::tool_name::ToolName;

#[derive(Debug)]
pub(crate) struct Read;

impl Tool for Read {
    fn name(&self) -> ToolName {
        ToolName::Read
    }

    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: ToolName::Read.as_str(),
            description:
                "Read a text file of the workspace, or a picture (PNG, JPEG, GIF, WebP). Each line comes as its number, a tab, and the line. At most \
                2000 lines or 50000 bytes at once; use offset and limit for the rest."
                    .to_owned(),
            input: json!({
                "type": "object",
                "properties": {
                    "path": {"type": "string"},
                    "offset": {"type": "integer", "minimum": 1, "description": "The first line to show, from 1"},
                    "limit": {"type": "integer", "minimum": 1}
                },
                "required": ["path"]
            }),
        }
    }

    fn subject(&self, input: &Input, scope: &Scope) -> Subject {
        input::text(input, "path").map_or(Subject::None, |path| path::subject(scope, path))
    }

    fn run<'a>(&'a self, input: Input, scope: &'a Scope) -> Running<'a> {
        Box::pin(async move { read(&input, scope).unwrap_or_else(|correction| correction) })
    }
}

fn read(input: &Input, scope: &Scope) -> Result<Answer, Answer> {
    let name = input::text(input, "path")?;
    let offset = input::optional_count(input, "offset")?.unwrap_or(1);
    let limit = input::optional_count(input, "limit")?.unwrap_or(LINES as u64).min(LINES as u64);
    let place = match path::granted(scope, name) {
        Some(place) => place,
        None => path::locate(scope, ToolName::Read, name)?,
    };
    if path::is_env_file(&place.relative) || path::is_env_file(Path::new(name)) {
        return Err(Answer::correction(format!(
            "`{name}` is for commands, not for read: what it sets is there for programs that bash runs; `.env.example` may tell its names"
        )));
    }
    let file = place.open()?;
    let metadata = file.metadata().map_err(|error| Answer::correction(format!("`{name}` cannot be read: {error}")))?;
    path::remember(scope, &place, &metadata);
    let mut reader = BufReader::with_capacity(64 * 1024, file);
    let start = reader.fill_buf().map_err(|error| Answer::correction(format!("`{name}` cannot be read: {error}")))?;
    match image::Kind::of(start) {
        Some(kind) => image::answer(&place.shown(), kind, reader, metadata.len()),
        None => lines(reader, &place.shown(), offset, limit),
    }
}

fn lines(mut reader: impl BufRead, name: &str, offset: u64, limit: u64) -> Result<Answer, Answer> {
    let broken = |error: std::io::Error| Answer::correction(format!("`{name}` cannot be read: {error}"));
    refuse_binary(name, reader.fill_buf().map_err(broken)?)?;
    let mut text = String::new();
    let mut number = 0;
    while number < offset + limit - 1 {
        let room = if number + 1 < offset { 0 } else { BYTES.saturating_sub(text.len()) };
        let Some(line) = line(&mut reader, room).map_err(broken)? else { break };
        number += 1;
        if number < offset {
            continue;
        }
        let bytes = line.kept.strip_suffix(b"\r").unwrap_or(&line.kept);
        let bytes = if number == 1 { bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes) } else { bytes };
        let shown = match std::str::from_utf8(bytes) {
            Ok(shown) => shown,
            // The line was cut in the middle of a character.
            Err(error) if line.missing > 0 && error.error_len().is_none() => {
                std::str::from_utf8(&bytes[..error.valid_up_to()]).expect("it is valid up to there")
            }
            Err(_) => {
                return Err(Answer::correction(format!("line {number} of `{name}` is not UTF-8 text; {OTHER_MEANS}")));
            }
        };
        let _ = writeln!(text, "{number}\t{shown}");
        if line.missing > 0 {
            let _ = writeln!(
                text,
                "[line {number} is cut: {} bytes more; use grep to see the part you need]",
                line.missing
            );
        }
        if text.len() >= BYTES {
            break;
        }
    }
    if number == 0 {
        // An answer without text makes models read again.
        return Ok(Answer::done(format!("`{name}` is empty: 0 bytes")));
    }
    if number < offset {
        let lines = crate::text::count(number as usize, "line", "lines");
        return Err(Answer::correction(format!("`{name}` has {lines}; offset must not be more than that")));
    }
    if !reader.fill_buf().map_err(broken)?.is_empty() {
        let _ = writeln!(text, "[more lines follow; go on with offset {}]", number + 1);
    }
    Ok(Answer::done(text))
}

const OTHER_MEANS: &str = "use bash with file, iconv or xxd to look at it";

fn refuse_binary(name: &str, start: &[u8]) -> Result<(), Answer> {
    let what = match start {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "UTF-16 text, not UTF-8",
        start if start.iter().take(8_192).any(|byte| *byte == 0) => "a binary file",
        _ => return Ok(()),
    };
    Err(Answer::correction(format!("`{name}` is {what}; {OTHER_MEANS}")))
}

/// A line without its end, and how much of it was not kept.
struct Line {
    kept: Vec<u8>,
    missing: u64,
}

/// The next line, of which at most `room` bytes are held.
fn line(reader: &mut impl BufRead, room: usize) -> std::io::Result<Option<Line>> {
    let mut line = Line { kept: Vec::new(), missing: 0 };
    let mut any = false;
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            return Ok(any.then_some(line));
        }
        any = true;
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let piece = &buffer[..end.unwrap_or(buffer.len())];
        let kept = piece.len().min(room - line.kept.len());
        line.kept.extend_from_slice(&piece[..kept]);
        line.missing += (piece.len() - kept) as u64;
        let used = end.map_or(piece.len(), |end| end + 1);
        reader.consume(used);
        if end.is_some() {
            return Ok(Some(line));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, input};
    use super::*;

    fn run(fixture: &Fixture, arguments: serde_json::Value) -> Answer {
        fixture.run(&Read, input(arguments))
    }

    #[test]
    fn lines_come_with_their_numbers() {
        let fixture = Fixture::new();
        fixture.write("a.txt", "one\ntwo\r\nthree");
        assert_eq!(run(&fixture, json!({"path": "a.txt"})), Answer::done("1\tone\n2\ttwo\n3\tthree\n"));
        let part = run(&fixture, json!({"path": fixture.path("a.txt"), "offset": "2", "limit": 1.0}));
        assert_eq!(part, Answer::done("2\ttwo\n[more lines follow; go on with offset 3]\n"));
    }

    #[test]
    fn what_cannot_be_read_is_corrected_at_once() {
        let fixture = Fixture::new();
        fixture.write("status.rs", "x\n");
        fixture.write("utf16.txt", b"\xff\xfea\0b\0");
        fixture.write("latin.txt", b"caf\xe9\n");
        fixture.write("a.png", b"\x89PNG\r\n\0\0");
        fixture.write("b.png", b"\x89PNG\r\n\x1a\n");
        fixture.write("dir/x", "x");
        fixture.write(".env", "KEY=1");
        fixture.write("sub/.env.local", "KEY=1");
        nix::unistd::mkfifo(&fixture.path("fifo"), nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(fixture.path("socket")).unwrap();
        std::os::unix::fs::symlink(".env", fixture.path("plain.txt")).unwrap();
        for (path, says) in [
            ("stauts.rs", "did you mean `status.rs`"),
            ("none/x", "does not exist"),
            ("status.rs/x", "cannot be opened"),
            ("utf16.txt", "UTF-16"),
            ("latin.txt", "line 1 of `latin.txt` is not UTF-8"),
            ("a.png", "binary"),
            ("b.png", "begins like a PNG picture but is none"),
            ("dir", "directory"),
            (".", "directory"),
            ("fifo", "pipe"),
            ("socket", "socket"),
            ("/dev/zero", "outside the workspace"),
            ("/dev/stdin", "outside the workspace"),
            ("/proc/self/mem", "outside the workspace"),
            ("../x", "outside the workspace"),
            ("", "empty"),
            (".env", "for commands, not for read"),
            ("sub/.env.local", "for commands, not for read"),
            ("plain.txt", "for commands, not for read"),
        ] {
            let answer = run(&fixture, json!({"path": path}));
            assert!(!answer.ok && answer.text.contains(says), "{path}: {answer:?}");
        }
        for arguments in [
            json!({}),
            json!({"path": 1}),
            json!({"path": "status.rs", "offset": 0}),
            json!({"path": "status.rs", "limit": "x"}),
        ] {
            assert!(!run(&fixture, arguments).ok);
        }
        let past = run(&fixture, json!({"path": "status.rs", "offset": 9}));
        assert!(!past.ok && past.text.contains("has 1 line;"), "{past:?}");
    }

    #[test]
    fn a_picture_is_shown_whatever_it_is_called() {
        let fixture = Fixture::new();
        for (at, (_, bytes)) in image::examples().into_iter().enumerate() {
            let name = format!("picture-{at}.txt");
            fixture.write(&name, bytes);
            let answer = run(&fixture, json!({"path": name, "offset": 3}));
            assert!(answer.ok && answer.images.len() == 1 && answer.text.contains("512 x 256"), "{answer:?}");
        }
    }

    #[test]
    fn a_giant_is_answered_from_its_start() {
        let fixture = Fixture::new();
        std::fs::File::create(fixture.path("zeros")).unwrap().set_len(2 << 30).unwrap();
        let zeros = run(&fixture, json!({"path": "zeros"}));
        assert!(!zeros.ok && zeros.text.contains("binary"), "{zeros:?}");
        fixture.write("line", "x".repeat(10 << 20));
        let line = run(&fixture, json!({"path": "line"}));
        assert!(line.ok && line.text.len() < BYTES + 300, "{}", line.text.len());
    }

    #[test]
    fn names_that_are_no_text_and_texts_of_other_encodings_do_no_harm() {
        use std::os::unix::ffi::OsStrExt;
        let fixture = Fixture::new();
        fixture.write("utf16.txt", b"\xff\xfea\0");
        fixture.write("a.png", &image::examples()[0].1);
        std::fs::write(fixture.scope.root.join(std::ffi::OsStr::from_bytes(b"b\xff.txt")), "x\n").unwrap();
        let listed = fixture.run(&super::super::glob::Glob, input(json!({"pattern": "**"}))).text;
        assert_eq!(listed, "a.png\nb\u{fffd}.txt\nutf16.txt");
        let read: Vec<bool> = listed.lines().map(|name| run(&fixture, json!({"path": name})).ok).collect();
        assert_eq!(read, [true, true, false]);
    }

    #[test]
    fn an_empty_file_says_that_it_is_empty() {
        let fixture = Fixture::new();
        fixture.write("empty", "");
        assert_eq!(run(&fixture, json!({"path": "empty"})), Answer::done("`empty` is empty: 0 bytes"));
    }

    #[test]
    fn an_example_of_an_env_file_is_read() {
        let fixture = Fixture::new();
        fixture.write(".env.example", "KEY=\n");
        assert!(run(&fixture, json!({"path": ".env.example"})).ok);
    }

    #[test]
    fn a_long_line_is_cut_on_a_character_and_what_follows_is_named() {
        for before in BYTES - 4..=BYTES {
            let fixture = Fixture::new();
            fixture.write("min.js", format!("{}🙂end\nnext\n", "x".repeat(before)));
            let answer = run(&fixture, json!({"path": "min.js"}));
            assert!(answer.ok && answer.text.len() < BYTES + 300, "{before}");
            assert!(
                answer.text.contains("[line 1 is cut: ") && answer.text.contains("go on with offset 2"),
                "{before}"
            );
        }
    }

    #[test]
    fn many_lines_end_at_the_limit_and_say_how_to_go_on() {
        let fixture = Fixture::new();
        fixture.write("many", "x\n".repeat(3_000));
        let answer = run(&fixture, json!({"path": "many", "limit": 9_999}));
        assert!(answer.text.ends_with("2000\tx\n[more lines follow; go on with offset 2001]\n"));
    }

    #[test]
    fn a_denied_file_stays_denied_behind_a_link_that_was_swapped() {
        let mut fixture = Fixture::new();
        fixture.write("secret/a", "x");
        fixture.scope.deny = vec!["read(secret/**)".parse().unwrap()];
        std::os::unix::fs::symlink("secret", fixture.path("open")).unwrap();
        assert_eq!(Read.subject(&input(json!({"path": "open/a"})), &fixture.scope), Subject::Path("secret/a".into()));
        assert!(!run(&fixture, json!({"path": "open/a"})).ok);
    }

    #[test]
    fn a_subject_is_the_real_path() {
        let fixture = Fixture::new();
        fixture.write("a/b.txt", "x");
        std::os::unix::fs::symlink("/etc", fixture.path("out")).unwrap();
        std::os::unix::fs::symlink("loop", fixture.path("loop")).unwrap();
        let subject = |path: &str| match Read.subject(&input(json!({"path": path})), &fixture.scope) {
            Subject::Path(path) => path,
            other => panic!("{other:?}"),
        };
        assert_eq!(subject("./a/../a/b.txt"), "a/b.txt");
        assert_eq!(subject("a/new"), "a/new");
        assert_eq!(subject("out/hosts"), "/etc/hosts");
        assert!(subject("loop/x").starts_with('/') && subject("../x").starts_with('/'));
    }

    #[test]
    fn a_name_that_is_no_text_is_read_by_the_name_it_is_shown_as() {
        use std::os::unix::ffi::OsStrExt;
        let fixture = Fixture::new();
        std::fs::write(fixture.scope.root.join(std::ffi::OsStr::from_bytes(b"b\xffd.txt")), "x\n").unwrap();
        assert_eq!(run(&fixture, json!({"path": "b\u{fffd}d.txt"})), Answer::done("1\tx\n"));
    }

    #[test]
    fn spilled_output_is_read_on() {
        let fixture = Fixture::new();
        std::fs::create_dir_all(&fixture.scope.spill).unwrap();
        let path = fixture.scope.spill.join("output-1.txt");
        std::fs::write(&path, "x\n").unwrap();
        assert_eq!(Read.subject(&input(json!({"path": path})), &fixture.scope), Subject::None);
        assert_eq!(run(&fixture, json!({"path": path})), Answer::done("1\tx\n"));
    }
}
