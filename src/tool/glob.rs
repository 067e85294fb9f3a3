//! `glob`: files whose path fits a pattern.
//!
//! Deliberately absent: any look into the files.

use std::fmt::Write as _;
use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};
use serde_json::json;

use super::output::{BYTES, LINES};
use super::walk::{self, Ignored};
use super::{Answer, Input, Running, Scope, Tool, input, path};
use crate::machine::gate::PathRules;
use crate::model::message::ToolSpec;
use crate::model::rule::Subject;
use crate::model::tool_name::ToolName;
use crate::text;

/// Ignored files are only counted so far: `node_modules` can be larger than all the rest.
const COUNTED: usize = 100_000;

#[derive(Debug)]
pub(crate) struct Glob;

impl Tool for Glob {
    fn name(&self) -> ToolName {
        ToolName::Glob
    }

    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: ToolName::Glob.as_str(),
            description: "List the files of the workspace whose path fits a pattern, sorted: `src/**/*.rs`, `**/test_*`. \
                `*` stays within a directory. Hidden files are included; what git ignores is left out unless its exact path is given."
                .to_owned(),
            input: json!({
                "type": "object",
                "properties": {"pattern": {"type": "string"}},
                "required": ["pattern"]
            }),
        }
    }

    /// The directory in which the pattern begins to vary.
    fn subject(&self, input: &Input, scope: &Scope) -> Subject {
        let Ok(pattern) = input::text(input, "pattern") else { return Subject::None };
        let fixed: Vec<&str> = pattern.split('/').take_while(|part| !is_pattern(part)).collect();
        let fixed = if fixed.len() == 1 && fixed[0].is_empty() { "/".to_owned() } else { fixed.join("/") };
        path::subject(scope, if fixed.is_empty() { "." } else { &fixed })
    }

    fn run<'a>(&'a self, input: Input, scope: &'a Scope) -> Running<'a> {
        walk::search(scope, move |scope| glob(&input, &scope).unwrap_or_else(|correction| correction))
    }
}

fn glob(input: &Input, scope: &Scope) -> Result<Answer, Answer> {
    let given = input::text(input, "pattern")?;
    let root = path::locate(scope, ToolName::Glob, ".")?.root.path().to_owned();
    let pattern = relative_pattern(given, &root)?;
    let denied = PathRules::denying(ToolName::Glob, &scope.deny);
    if !is_pattern(&pattern) {
        // A path that is there is found, whatever git thinks of it.
        let place = path::locate(scope, ToolName::Glob, &pattern)?;
        return match place.metadata() {
            Ok(metadata) if metadata.is_dir() => {
                Err(Answer::correction(format!("`{pattern}` is a directory; write `{pattern}/**` for what is in it")))
            }
            Ok(_) => Ok(Answer::done(pattern)),
            Err(_) => Err(place.missing()),
        };
    }
    let matcher = GlobBuilder::new(&pattern).literal_separator(true).build();
    let matcher =
        matcher.map_err(|error| Answer::correction(format!("the pattern is wrong: {error}")))?.compile_matcher();
    let found = Found::in_tree(scope, &root, &matcher, &denied, Ignored::LeftOut);
    let hidden = found.hidden(scope, &root, &matcher, &denied);
    if found.count == 0 {
        let cut = if walk::is_cut(scope) { " so far; the search was cut short" } else { "" };
        return Err(Answer::correction(format!("no file fits `{given}`{cut}{hidden}")));
    }
    Ok(Answer::done(found.listing(&hidden, walk::is_cut(scope))))
}

/// Files that fit: the first of them and the number of all.
#[derive(Default)]
struct Found {
    shown: String,
    lines: usize,
    count: usize,
    looked_at: usize,
}

impl Found {
    fn in_tree(scope: &Scope, root: &Path, matcher: &GlobMatcher, denied: &PathRules, ignored: Ignored) -> Self {
        let mut found = Self::default();
        for entry in walk::walk(root, ignored).flatten() {
            found.looked_at += 1;
            if walk::is_cut(scope) || (ignored == Ignored::Included && found.looked_at > COUNTED) {
                break;
            }
            let Some(relative) = walk::below(root, entry.path()) else { continue };
            if !matcher.is_match(&relative) || !is_file(&entry, root) || denied.denies(&relative.to_string_lossy()) {
                continue;
            }
            found.count += 1;
            let line = relative.to_string_lossy();
            if found.lines < LINES && found.shown.len() + line.len() < BYTES {
                found.lines += 1;
                found.shown.push_str(&line);
                found.shown.push('\n');
            }
        }
        found
    }

    /// What to say about files that fit and that git ignores.
    fn hidden(&self, scope: &Scope, root: &Path, matcher: &GlobMatcher, denied: &PathRules) -> String {
        let all = Self::in_tree(scope, root, matcher, denied, Ignored::Included);
        let hidden = all.count.saturating_sub(self.count);
        if hidden == 0 {
            return String::new();
        }
        let at_least = if all.looked_at > COUNTED { "at least " } else { "" };
        let files = text::count(hidden, "file that fits is", "files that fit are");
        format!("\n[{at_least}{files} ignored by git and not shown; give an exact path to see one]")
    }

    fn listing(&self, hidden: &str, cut: bool) -> String {
        let mut listing = self.shown.trim_end().to_owned();
        if self.count > self.lines {
            let more = text::count(self.count - self.lines, "more file", "more files");
            let _ = write!(listing, "\n[{more} not shown; use a narrower pattern]");
        }
        if cut {
            listing.push_str("\n[the search was cut short]");
        }
        listing + hidden
    }
}

/// A file, or a link to one inside the workspace.
fn is_file(entry: &ignore::DirEntry, root: &Path) -> bool {
    match entry.file_type() {
        Some(kind) if kind.is_symlink() => {
            std::fs::canonicalize(entry.path()).is_ok_and(|real| real.starts_with(root) && real.is_file())
        }
        Some(kind) => kind.is_file(),
        None => false,
    }
}

/// The pattern as it fits paths below the root.
pub(super) fn relative_pattern(given: &str, root: &Path) -> Result<String, Answer> {
    let root = format!("{}/", root.to_string_lossy());
    let pattern = given.strip_prefix(&root).unwrap_or(given);
    let pattern = pattern.strip_prefix("./").unwrap_or(pattern).trim_end_matches('/');
    if pattern.is_empty() {
        return Err(Answer::correction("the pattern is empty; write `**` for every file"));
    }
    if pattern.starts_with('/') || pattern.split('/').any(|part| part == "..") {
        return Err(Answer::correction(format!("`{given}` leads outside the workspace; patterns are relative to it")));
    }
    Ok(pattern.to_owned())
}

fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '[', '{'])
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, input};
    use super::*;

    fn run(fixture: &Fixture, pattern: &str) -> Answer {
        fixture.run(&Glob, input(json!({"pattern": pattern})))
    }

    #[test]
    fn files_are_listed_in_order_with_hidden_ones_and_without_git() {
        let fixture = Fixture::new();
        for path in [
            "b.rs",
            "a.rs",
            "src/z.rs",
            "src/deep/a.rs",
            ".github/workflows/ci.yml",
            ".eslintrc.json",
            "app/.env.sample",
            ".git/a.rs",
        ] {
            fixture.write(path, "");
        }
        for (pattern, want) in [
            ("**/*.rs", "a.rs\nb.rs\nsrc/deep/a.rs\nsrc/z.rs"),
            ("*.rs", "a.rs\nb.rs"),
            ("./src/*.rs", "src/z.rs"),
            (".github/workflows/*.yml", ".github/workflows/ci.yml"),
            (".eslintrc.json", ".eslintrc.json"),
            ("*/.env.sample", "app/.env.sample"),
            ("**/{z,b}.rs", "b.rs\nsrc/z.rs"),
        ] {
            assert_eq!(run(&fixture, pattern), Answer::done(want), "{pattern}");
        }
        assert_eq!(run(&fixture, &format!("{}/*.rs", fixture.scope.root.display())), Answer::done("a.rs\nb.rs"));
    }

    #[test]
    fn an_ignored_file_is_found_by_its_path_and_otherwise_counted() {
        let fixture = Fixture::new();
        fixture.write(".gitignore", "dist/\n");
        fixture.write("dist/a.js", "");
        fixture.write("src/a.js", "");
        assert_eq!(run(&fixture, "dist/a.js"), Answer::done("dist/a.js"));
        let both = run(&fixture, "**/a.js");
        assert!(both.text.starts_with("src/a.js\n[1 file that fits is ignored by git"), "{both:?}");
        let none = run(&fixture, "dist/*.js");
        assert!(!none.ok && none.text.contains("1 file that fits is ignored"), "{none:?}");
    }

    #[test]
    fn what_leads_nowhere_is_corrected() {
        let fixture = Fixture::new();
        fixture.write("src/main.rs", "");
        for (pattern, says) in [
            ("../*", "outside"),
            ("/etc/*", "outside"),
            ("a/../../*", "outside"),
            ("", "empty"),
            ("x{", "pattern is wrong"),
            ("*.py", "no file fits"),
            ("src/mian.rs", "did you mean `src/main.rs`"),
            ("src", "write `src/**`"),
        ] {
            let answer = run(&fixture, pattern);
            assert!(!answer.ok && answer.text.contains(says), "{pattern}: {answer:?}");
        }
    }

    #[test]
    fn a_link_out_of_the_workspace_is_not_listed() {
        let fixture = Fixture::new();
        fixture.write("a.txt", "");
        std::os::unix::fs::symlink("/etc/passwd", fixture.path("out.txt")).unwrap();
        std::os::unix::fs::symlink("/etc", fixture.path("etc")).unwrap();
        std::os::unix::fs::symlink("a.txt", fixture.path("in.txt")).unwrap();
        assert_eq!(run(&fixture, "**"), Answer::done("a.txt\nin.txt"));
    }

    #[test]
    fn denied_files_are_left_out() {
        let mut fixture = Fixture::new();
        fixture.write("secret/a", "");
        fixture.write("b", "");
        fixture.scope.deny = vec!["read(secret/**)".parse().unwrap()];
        assert_eq!(run(&fixture, "**"), Answer::done("b"));
        assert!(!run(&fixture, "secret/a").ok);
    }

    #[test]
    fn a_long_list_is_cut_and_a_search_can_be_ended() {
        let fixture = Fixture::new();
        for n in 0..2_050 {
            fixture.write(&format!("f{n:04}"), "");
        }
        let answer = run(&fixture, "*");
        assert!(answer.text.contains("f1999\n[50 more files not shown"), "{}", text::suffix(&answer.text, 200));
        fixture.cut.send(true).unwrap();
        let cut = run(&fixture, "*");
        assert!(!cut.ok && cut.text.contains("cut short"), "{cut:?}");
    }

    #[test]
    fn a_hundred_thousand_files_in_one_directory_are_each_looked_at_once() {
        let fixture = Fixture::for_many_files();
        for n in 0..100_000 {
            std::fs::File::create(fixture.path(&format!("f{n:06}"))).unwrap();
        }
        fixture.write("f000000", "needle\n");
        let all = GlobBuilder::new("*").literal_separator(true).build().unwrap().compile_matcher();
        let denied = PathRules::denying(ToolName::Glob, &[]);
        let found = Found::in_tree(&fixture.scope, &fixture.scope.root, &all, &denied, Ignored::LeftOut);
        assert_eq!((found.count, found.lines), (100_000, LINES));
        assert!(found.looked_at <= 100_001, "{}", found.looked_at);
        let ignored = Found::in_tree(&fixture.scope, &fixture.scope.root, &all, &denied, Ignored::Included);
        assert!(ignored.looked_at <= COUNTED + 1, "{}", ignored.looked_at);
        assert!(found.listing("", false).ends_with("f001999\n[98000 more files not shown; use a narrower pattern]"));
        let grep = fixture.run(&super::super::grep::Grep, input(json!({"pattern": "needle"})));
        assert_eq!(grep, Answer::done("f000000:1:needle"));
    }

    #[test]
    fn special_files_are_neither_listed_nor_opened() {
        let fixture = Fixture::new();
        fixture.write("a", "x\n");
        nix::unistd::mkfifo(&fixture.path("fifo"), nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        std::os::unix::fs::symlink("/dev/zero", fixture.path("zero")).unwrap();
        std::fs::File::create(fixture.path("giant")).unwrap().set_len(2 << 30).unwrap();
        assert_eq!(run(&fixture, "*"), Answer::done("a\ngiant"));
        let grep = fixture.run(&super::super::grep::Grep, input(json!({"pattern": "."})));
        assert_eq!(grep, Answer::done("a:1:x"));
    }

    #[test]
    fn a_subject_is_where_the_search_begins() {
        let fixture = Fixture::new();
        let subject = |pattern: &str| Glob.subject(&input(json!({"pattern": pattern})), &fixture.scope);
        for (pattern, want) in
            [("secret/*", "secret"), ("**", "."), ("a/b.rs", "a/b.rs"), ("/*", "/"), ("/etc/*", "/etc")]
        {
            assert_eq!(subject(pattern), Subject::Path(want.to_owned()), "{pattern}");
        }
    }
}
