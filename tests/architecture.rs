//! The architecture is a test: the floors of `src/lib.rs` hold, and so do the few rules that no lint knows.
//!
//! Each file is read as Rust: `syn` finds its modules and its tests, and a walk over the tokens finds every name, also in
//! macros. A rule that fails says file, line and what to do. Deliberately absent: style that rustfmt or clippy checks.

#![expect(clippy::unwrap_used, reason = "a test that cannot read its files has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::spanned::Spanned;

/// The floors from below. A file imports lower floors and its own module; modules of one floor do not know each other.
const FLOORS: &[(&str, &[&str])] = &[
    ("0", &["text", "front_matter"]),
    ("1", &["model"]),
    ("2", &["machine"]),
    ("3a", &["command", "files", "sandbox"]),
    ("3", &["store", "watch", "terminal", "workspace", "provider", "tool", "limiter"]),
    ("4", &["agent", "harness"]),
    ("5", &["supervisor"]),
    ("6", &["tui", "mcp", "acp", "program"]),
    ("7", &["cli", "fuzzing"]),
];

/// The last floor without a world: no IO, no async, no clock.
const PURE: &str = "2";

/// What a pure floor does not name: the first segments of a path, or two segments anywhere in it.
const WORLD: &[&[&str]] = &[&["std", "fs"], &["std", "process"], &["std", "net"], &["std", "env"], &["tokio"]];
const CLOCK: &[[&str; 2]] = &[["Instant", "now"], ["SystemTime", "now"], ["Zoned", "now"], ["Timestamp", "now"]];

/// Modules of which only the trait and the types in `mod.rs` are known outside.
const ADAPTERS: &[&str] = &["provider", "terminal", "tool"];
const WIRE: &str = "cli/wire.rs";

const PRINTER: &str = "cli/output.rs";
const PRINTING: &[&str] = &["print", "println", "eprint", "eprintln", "dbg"];
/// To ask a stream what it is, is not to write to it.
const ASKING: &[&str] = &["is_terminal", "as_fd", "as_raw_fd"];

const UNSAFE_ALLOWED: &[&str] = &["command.rs", "command/", "sandbox.rs", "sandbox/"];

const LINES: usize = 600;

/// The source as one value: relative path to text.
type Tree = BTreeMap<String, String>;

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Violation {
    path: String,
    line: usize,
    rule: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "src/{}:{}: {}", self.path, self.line, self.rule)
    }
}

/// All that is wrong with a tree.
fn check(tree: &Tree) -> BTreeSet<Violation> {
    let files: Vec<File> = tree.iter().map(|(path, text)| File::parse(path, text)).collect();
    let tests: BTreeSet<String> = files.iter().flat_map(File::test_files).collect();
    let mut violations = BTreeSet::new();
    for file in &files {
        let is_test =
            tests.iter().any(|test| file.path == format!("{test}.rs") || file.path.starts_with(&format!("{test}/")));
        let mut walk = Walk { file, tree, is_test, violations: &mut violations };
        walk.form();
        walk.tokens(file.tokens.clone(), &[]);
    }
    violations
}

/// A file with what its structure says about lines.
struct File<'a> {
    path: &'a str,
    text: &'a str,
    tokens: TokenStream,
    /// Lines of items that exist only in tests.
    test_lines: Vec<(usize, usize)>,
    /// Lines and names of inline modules, outer before inner.
    inline_modules: Vec<(usize, usize, String)>,
    /// Names of modules in other files that exist only in tests.
    test_modules: Vec<String>,
    /// The line of the first test module.
    first_test: Option<usize>,
}

impl<'a> File<'a> {
    fn parse(path: &'a str, text: &'a str) -> Self {
        let syntax = syn::parse_file(text).unwrap_or_else(|error| panic!("src/{path}: {error}"));
        let tokens = text.parse().expect("syn read the same text");
        let mut file = Self {
            path,
            text,
            tokens,
            test_lines: Vec::new(),
            inline_modules: Vec::new(),
            test_modules: Vec::new(),
            first_test: None,
        };
        file.items(&syntax.items);
        file
    }

    fn items(&mut self, items: &[syn::Item]) {
        for item in items {
            let (start, end) = (item.span().start().line, item.span().end().line);
            let is_test = attributes(item).iter().any(is_test_attribute);
            if is_test {
                self.test_lines.push((start, end));
            }
            let syn::Item::Mod(module) = item else { continue };
            if is_test {
                self.first_test.get_or_insert(start);
                if module.content.is_none() {
                    self.test_modules.push(module.ident.to_string());
                }
            }
            if let Some((_, items)) = &module.content {
                self.inline_modules.push((start, end, module.ident.to_string()));
                self.items(items);
            }
        }
    }

    /// `["store", "catalog"]` for `store/catalog.rs`; empty for the root.
    fn module(&self) -> Vec<String> {
        let path = self.path.trim_end_matches(".rs");
        let path = path.strip_suffix("/mod").unwrap_or(path);
        if matches!(path, "lib" | "main") { Vec::new() } else { path.split('/').map(str::to_owned).collect() }
    }

    fn module_at(&self, line: usize) -> Vec<String> {
        let inline = self.inline_modules.iter().filter(|(start, end, _)| (*start..=*end).contains(&line));
        self.module().into_iter().chain(inline.map(|(_, _, name)| name.clone())).collect()
    }

    /// Paths, without `.rs`, of the files that only tests compile.
    fn test_files(&self) -> Vec<String> {
        let module = self.module();
        self.test_modules
            .iter()
            .map(|name| module.iter().chain([name]).map(String::as_str).collect::<Vec<_>>().join("/"))
            .collect()
    }
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    use syn::Item;
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// `#[test]`, or `#[cfg(..)]` that asks for `test` and does not deny it.
fn is_test_attribute(attribute: &syn::Attribute) -> bool {
    let has = |name: &str| match &attribute.meta {
        syn::Meta::List(list) => holds_word(list.tokens.clone(), name),
        syn::Meta::Path(_) | syn::Meta::NameValue(_) => false,
    };
    attribute.path().is_ident("test") || (attribute.path().is_ident("cfg") && has("test") && !has("not"))
}

fn holds_word(tokens: TokenStream, word: &str) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == word,
        TokenTree::Group(group) => holds_word(group.stream(), word),
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}

/// The position of a floor, and its name.
fn floor(module: &str) -> Option<(usize, &'static str)> {
    let position = FLOORS.iter().position(|(_, modules)| modules.contains(&module))?;
    Some((position, FLOORS[position].0))
}

/// One pass over a file.
struct Walk<'a> {
    file: &'a File<'a>,
    tree: &'a Tree,
    /// The whole file is compiled for tests only.
    is_test: bool,
    violations: &'a mut BTreeSet<Violation>,
}

impl Walk<'_> {
    fn report(&mut self, line: usize, rule: impl Into<String>) {
        self.violations.insert(Violation { path: self.file.path.to_owned(), line, rule: rule.into() });
    }

    fn in_test(&self, line: usize) -> bool {
        self.is_test || self.file.test_lines.iter().any(|(start, end)| (*start..=*end).contains(&line))
    }

    /// What holds of the file as a whole.
    fn form(&mut self) {
        if !self.file.text.starts_with("//!") {
            self.report(1, "no `//!` at the top; say what lives here and what is deliberately absent");
        }
        let lines = self.file.first_test.map_or(self.file.text.lines().count(), |line| line - 1);
        if lines > LINES && !self.is_test {
            self.report(LINES + 1, format!("{lines} lines before the tests; {LINES} are the most, divide it by nouns"));
        }
        if let Some(module) = self.file.module().first()
            && floor(module).is_none()
        {
            self.report(1, format!("module `{module}` has no floor; give it one in FLOORS of tests/architecture.rs"));
        }
    }

    /// Walks tokens; `prefix` is the path before the braces of a `use`.
    fn tokens(&mut self, tokens: TokenStream, prefix: &[String]) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Group(group) => {
                    if group.delimiter() == Delimiter::Bracket && is_attribute(&tokens[..at]) {
                        self.attribute(&group.stream(), group.span().start().line);
                    }
                    self.tokens(group.stream(), &[]);
                    at += 1;
                }
                TokenTree::Ident(_) if at > 0 && is_punct(&tokens[at - 1], '.') => at += 1,
                TokenTree::Ident(_) => at = self.path(&tokens, at, prefix),
                TokenTree::Punct(_) | TokenTree::Literal(_) => at += 1,
            }
        }
    }

    fn attribute(&mut self, content: &TokenStream, line: usize) {
        let first = content.clone().into_iter().next();
        let is = |word: &str| matches!(&first, Some(TokenTree::Ident(ident)) if ident == word);
        if is("allow") || (is("cfg_attr") && holds_word(content.clone(), "allow")) {
            self.report(line, "`allow` hides what comes later; write #[expect(.., reason = \"..\")]");
        }
    }

    /// Reads the path that starts at `at` and judges it; returns where it ends.
    fn path(&mut self, tokens: &[TokenTree], at: usize, prefix: &[String]) -> usize {
        let line = tokens[at].span().start().line;
        let mut segments = prefix.to_vec();
        let mut end = at;
        while let Some(TokenTree::Ident(ident)) = tokens.get(end) {
            segments.push(ident.to_string());
            end += 1;
            if !(tokens.get(end).is_some_and(|t| is_punct(t, ':'))
                && tokens.get(end + 1).is_some_and(|t| is_punct(t, ':')))
            {
                break;
            }
            match tokens.get(end + 2) {
                Some(TokenTree::Ident(_)) => end += 2,
                Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                    self.tokens(group.stream(), &segments);
                    return end + 3;
                }
                _ => break,
            }
        }
        if segments == ["unsafe"] {
            self.unsafe_code(line);
        }
        if !self.in_test(line) {
            self.prints(&segments, tokens, at, end);
            self.names(&segments, line);
        }
        end
    }

    fn unsafe_code(&mut self, line: usize) {
        if !UNSAFE_ALLOWED.iter().any(|place| self.file.path == *place || self.file.path.starts_with(place)) {
            self.report(line, "unsafe code; only command.rs and sandbox/ may hold it");
        }
    }

    fn prints(&mut self, segments: &[String], tokens: &[TokenTree], at: usize, end: usize) {
        if self.file.path == PRINTER {
            return;
        }
        let Some(last) = segments.last().map(String::as_str) else { return };
        let line = tokens[at].span().start().line;
        let group = |index: usize| match tokens.get(index) {
            Some(TokenTree::Group(group)) => Some(group),
            _ => None,
        };
        if PRINTING.contains(&last) && tokens.get(end).is_some_and(|t| is_punct(t, '!')) && group(end + 1).is_some() {
            self.report(line, format!("`{last}!` prints; only {PRINTER} does, return the text instead"));
        }
        let is_defined = at > 0 && matches!(&tokens[at - 1], TokenTree::Ident(ident) if ident == "fn");
        let is_called = group(end).is_some_and(|g| g.delimiter() == Delimiter::Parenthesis && g.stream().is_empty());
        let is_asked = tokens.get(end + 1).is_some_and(|t| is_punct(t, '.'))
            && matches!(tokens.get(end + 2), Some(TokenTree::Ident(method)) if ASKING.iter().any(|asking| method == asking));
        if matches!(last, "stdout" | "stderr") && is_called && !is_defined && !is_asked {
            self.report(line, format!("`{last}()` is opened; only {PRINTER} writes to it"));
        }
    }

    /// Judges a name by where it leads.
    fn names(&mut self, segments: &[String], line: usize) {
        let Some(own) = self.file.module().first().cloned() else { return };
        let Some((height, own_floor)) = floor(&own) else { return };
        match resolve(segments, self.file.module_at(line)) {
            Some(target) => self.import(&own, (height, own_floor), &target, line),
            None if height <= floor_named(PURE) => self.world(segments, own_floor, line),
            None => {}
        }
        if height <= floor_named(PURE)
            && let Some([thing, call]) = CLOCK.iter().find(|clock| segments.windows(2).any(|pair| pair == *clock))
        {
            self.report(line, format!("`{thing}::{call}` on floor {own_floor}; take `now` as an argument"));
        }
    }

    fn import(&mut self, own: &str, (height, own_floor): (usize, &str), target: &[String], line: usize) {
        let Some(module) = target.first() else { return };
        if module == own {
            return;
        }
        match floor(module) {
            None => self.report(line, format!("`crate::{module}` has no floor; give it one, or name where it lies")),
            Some((other, name)) if other == height => {
                let rule = "modules of one floor do not import each other; what both need lies lower";
                self.report(line, format!("`{own}` imports `{module}`, both on floor {name}: {rule}"));
            }
            Some((other, name)) if other > height => {
                let rule = "imports point down";
                self.report(line, format!("`{own}` on floor {own_floor} imports `{module}` on floor {name}: {rule}"));
            }
            Some(_) => {}
        }
        if let Some(inner) = target.get(1)
            && ADAPTERS.contains(&module.as_str())
            && self.file.path != WIRE
            && self.is_file(module, inner)
        {
            self.report(line, format!("`{module}::{inner}` is an adapter; only {WIRE} names it, take the trait"));
        }
    }

    fn is_file(&self, module: &str, inner: &str) -> bool {
        [format!("{module}/{inner}.rs"), format!("{module}/{inner}/mod.rs")].iter().any(|p| self.tree.contains_key(p))
    }

    fn world(&mut self, segments: &[String], own_floor: &str, line: usize) {
        if let Some(world) =
            WORLD.iter().find(|world| segments.len() >= world.len() && segments[..world.len()] == ***world)
        {
            self.report(line, format!("`{}` on floor {own_floor}, which does not touch the world", world.join("::")));
        }
    }
}

fn floor_named(name: &str) -> usize {
    FLOORS.iter().position(|(floor, _)| *floor == name).expect("the floor is in the table")
}

fn is_punct(token: &TokenTree, c: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == c)
}

/// Whether what stands before a bracket makes it an attribute: `#` or `#!`.
fn is_attribute(before: &[TokenTree]) -> bool {
    match before {
        [.., hash, bang] if is_punct(bang, '!') => is_punct(hash, '#'),
        [.., hash] => is_punct(hash, '#'),
        [] => false,
    }
}

/// The path from the crate's root; `None` for a path that leads outside or is relative to what was imported.
fn resolve(segments: &[String], mut module: Vec<String>) -> Option<Vec<String>> {
    let (first, mut rest) = segments.split_first()?;
    match first.as_str() {
        "crate" => module.clear(),
        "self" => {}
        "super" => {
            module.pop();
            while rest.first().is_some_and(|next| next == "super") {
                module.pop();
                rest = &rest[1..];
            }
        }
        _ => return None,
    }
    // `use crate::model::{self}` names the module itself.
    module.extend(rest.iter().filter(|segment| *segment != "self").cloned());
    Some(module)
}

/// The crate as it is.
fn source() -> Tree {
    fn add(directory: &Path, root: &Path, tree: &mut Tree) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                add(&path, root, tree);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let relative = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
                tree.insert(relative, std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut tree = Tree::new();
    add(&root, &root, &mut tree);
    tree
}

#[test]
fn the_source_keeps_its_architecture() {
    let tree = source();
    assert!(tree.contains_key("lib.rs"));
    let violations: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
    assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
}

#[test]
fn every_directory_of_the_source_has_a_floor_in_its_first_screen() {
    let map = &source()["lib.rs"];
    for module in map.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';')) {
        assert!(floor(module).is_some(), "`{module}` is not in FLOORS");
    }
}

/// The violations of one small file, as `line: rule`.
fn faults(path: &str, code: &str) -> Vec<String> {
    faults_in(&[(path, code)])
}

fn faults_in(files: &[(&str, &str)]) -> Vec<String> {
    let tree = files.iter().map(|(path, code)| ((*path).to_owned(), format!("//! A file.\n{code}\n"))).collect();
    check(&tree).iter().map(|violation| format!("{}: {}", violation.line, violation.rule)).collect()
}

#[track_caller]
fn one_fault(path: &str, code: &str, line: usize, words: &str) {
    let found = faults(path, code);
    assert_eq!(found.len(), 1, "{code}: {found:?}");
    assert!(found[0].starts_with(&format!("{line}: ")) && found[0].contains(words), "{code}: {found:?}");
}

#[test]
fn an_import_that_points_up_is_found_wherever_it_hides() {
    let up = "imports point down";
    one_fault("model/a.rs", "use crate::store::RunDir;", 2, up);
    one_fault("model/a.rs", "use crate::{model::id, store};", 2, up);
    one_fault("model/a.rs", "use crate::{\n    model::id,\n    store::{self, RunDir as Other},\n};", 4, up);
    one_fault("model/a.rs", "fn f() {\n    crate::store::go();\n}", 3, up);
    one_fault("model/a.rs", "fn f(x: &crate::store::RunDir) {}", 2, up);
    one_fault("model/a.rs", "use super::super::store::RunDir;", 2, up);
    one_fault("model/a.rs", "mod inner {\n    use super::super::super::store::RunDir;\n}", 3, up);
    one_fault("model/a.rs", "fn f() {\n    assert!(crate::store::go());\n}", 3, up);
    one_fault("model/a.rs", "macro_rules! m { () => { $crate::store::go() } }", 2, up);
    one_fault("text.rs", "use super::model::id;", 2, up);
    one_fault("supervisor/mod.rs", "pub use crate::cli::x;", 2, up);
    one_fault("command.rs", "use crate::store::x;", 2, up);
}

#[test]
fn an_import_that_points_down_or_stays_is_sound() {
    for (path, code) in [
        ("store/a.rs", "use crate::{files, model::id::RunId, store::b, text};\nuse super::b::C;\nuse self::d::E;"),
        ("store/a.rs", "mod inner { use super::super::b; use super::c; }"),
        ("machine/child.rs", "use crate::model::child; use super::Timer; use std::collections::BTreeMap;"),
        ("cli/mod.rs", "use crate::tui; use crate::supervisor; use tokio::select; use std::fs;"),
        ("lib.rs", "mod cli;\npub fn run() -> u8 { crate::cli::run() }"),
        ("model/a.rs", "pub(crate) fn f() {} pub(in crate::model) fn g(s: &S) { s.store.tokio(); }"),
    ] {
        assert_eq!(faults(path, code), Vec::<String>::new(), "{code}");
    }
}

#[test]
fn neighbours_on_one_floor_do_not_know_each_other() {
    one_fault("store/a.rs", "use crate::workspace::Request;", 2, "both on floor 3");
    one_fault("sandbox/mod.rs", "use crate::command::Invocation;", 2, "both on floor 3a");
    one_fault("tui/mod.rs", "use crate::mcp::x;", 2, "both on floor 6");
}

#[test]
fn a_module_without_a_floor_is_found() {
    one_fault("utils.rs", "", 1, "has no floor");
    one_fault("store/a.rs", "use crate::utils::x;", 2, "has no floor");
}

#[test]
fn a_pure_floor_that_touches_the_world_is_found() {
    for (code, name) in [
        ("use std::fs;", "std::fs"),
        ("use std::{collections::BTreeMap, env};", "std::env"),
        ("fn f() { ::std::process::exit(1) }", "std::process"),
        ("use std::net::TcpStream;", "std::net"),
        ("async fn f() { tokio::task::yield_now().await }", "tokio"),
        ("fn f() { let _ = format!(\"{:?}\", std::env::args()); }", "std::env"),
        ("fn f() { std::time::Instant::now(); }", "Instant::now"),
        ("use std::time::SystemTime;fn f() { let f = SystemTime::now; }", "SystemTime::now"),
    ] {
        for path in ["machine/a.rs", "model/a.rs", "front_matter.rs"] {
            one_fault(path, code, 2, name);
        }
        assert_eq!(faults("store/a.rs", code), Vec::<String>::new(), "{code}");
    }
}

#[test]
fn only_the_wiring_names_an_adapter() {
    let tree = |path: &'static str, code: &'static str| {
        faults_in(&[(path, code), ("tool/bash.rs", ""), ("terminal/tmux/mod.rs", ""), ("provider/http.rs", "")])
    };
    for code in ["use crate::tool::bash::Bash;", "use crate::terminal::{Terminal, tmux};", "use crate::provider::http;"]
    {
        assert!(tree("agent/mod.rs", code)[0].contains("is an adapter"), "{code}");
        assert_eq!(tree("cli/wire.rs", code), Vec::<String>::new(), "{code}");
    }
    assert_eq!(
        tree("agent/mod.rs", "use crate::tool::{Tool, all}; use crate::terminal::Terminal;"),
        Vec::<String>::new()
    );
    assert_eq!(tree("tool/mod.rs", "mod bash; use self::bash::Bash; use crate::tool::bash;"), Vec::<String>::new());
}

#[test]
fn only_one_file_prints() {
    for code in [
        "fn f() { println!(\"x\"); }",
        "fn f() { std::eprint!(\"x\"); }",
        "fn f() { vec![dbg!(1)]; }",
        "fn f() { writeln!(std::io::stdout(), \"x\"); }",
        "fn f() { io::stderr().write_all(b\"x\"); }",
        "fn f() { let out = stdout().lock(); }",
    ] {
        assert_eq!(faults("agent/mod.rs", code).len(), 1, "{code}");
        assert_eq!(faults("cli/output.rs", code), Vec::<String>::new(), "{code}");
    }
    let sound = "fn f() { io::stdout().is_terminal(); command.stdout(x); child.stdout.take(); print != x; self.stdout() }\n\
                 fn stdout() {}";
    assert_eq!(faults("agent/mod.rs", sound), Vec::<String>::new());
}

#[test]
fn allow_and_unsafe_are_found_also_in_tests() {
    for code in [
        "#[allow(dead_code)] fn f() {}",
        "#![allow(dead_code)]",
        "#[cfg_attr(test, allow(dead_code))] fn f() {}",
        "#[cfg(test)] mod tests { #[allow(dead_code)] fn f() {} }",
        "macro_rules! m { () => { #[allow(dead_code)] fn f() {} } }",
    ] {
        one_fault("store/a.rs", code, 2, "expect");
    }
    assert_eq!(faults("store/a.rs", "#[expect(dead_code, reason = \"x\")] fn f() { allow(x) }"), Vec::<String>::new());
    for code in [
        "fn f() { unsafe { g() } }",
        "unsafe fn f() {}",
        "unsafe impl Send for A {}",
        "#[cfg(test)] mod tests { fn f() { unsafe { g() } } }",
    ] {
        one_fault("store/a.rs", code, 2, "unsafe");
        for path in ["command.rs", "command/tree.rs", "sandbox/landlock.rs"] {
            assert_eq!(faults(path, code), Vec::<String>::new(), "{code}");
        }
    }
    assert_eq!(faults("store/a.rs", "// unsafe\nfn f() { \"unsafe\"; }"), Vec::<String>::new());
}

#[test]
fn what_only_tests_compile_may_reach_up_and_print() {
    for code in [
        "#[cfg(test)]\nmod tests {\n    use crate::store::x;\n    fn f() { println!(); std::fs::read(a); }\n}",
        "#[cfg(all(test, unix))]\nfn f() { crate::store::x() }",
        "#[test]\nfn f() { std::fs::read(a); }",
    ] {
        assert_eq!(faults("model/a.rs", code), Vec::<String>::new(), "{code}");
    }
    assert_eq!(faults("model/a.rs", "#[cfg(not(test))]\nuse crate::store::x;").len(), 1);
    let outside = [("model/a.rs", "#[cfg(test)]\nmod tests;"), ("model/a/tests.rs", "use crate::store::x;")];
    assert_eq!(faults_in(&outside), Vec::<String>::new());
}

#[test]
fn a_file_says_what_it_is_and_ends_in_time() {
    let tree = |text: String| check(&Tree::from([("text.rs".to_owned(), text)])).len();
    assert_eq!(tree("fn f() {}\n".to_owned()), 1);
    assert_eq!(tree("//! A.\n".to_owned() + &"//\n".repeat(599)), 0);
    assert_eq!(tree("//! A.\n".to_owned() + &"//\n".repeat(600)), 1);
    assert_eq!(tree("//! A.\n#[cfg(test)]\nmod tests {\n".to_owned() + &"//\n".repeat(900) + "}\n"), 0);
}
