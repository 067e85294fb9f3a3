//! Which lines define something, by language: the patterns of definitions, and what kind of file a path is.
//!
//! Deliberately absent: parsing. A line is judged alone, because a search sees lines alone.

use std::sync::LazyLock;

use regex::Regex;

use super::words::{self, Part};

/// What a line defines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Function,
    Type,
    Constant,
    Module,
    /// `impl` and the like: more about a type that is defined elsewhere.
    Block,
    /// A title of a document.
    Heading,
    /// A key or target of a configuration.
    Key,
    /// The file itself, cited by its first line.
    File,
}

impl Kind {
    pub(super) const fn noun(self) -> &'static str {
        match self {
            Self::Function => "function",
            Self::Type => "type",
            Self::Constant => "constant or variable",
            Self::Module => "module",
            Self::Block => "implementation",
            Self::Heading => "heading",
            Self::Key => "key",
            Self::File => "file",
        }
    }
}

/// A name and what it is the name of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Definition<'a> {
    pub(super) kind: Kind,
    pub(super) name: &'a str,
}

type Patterns = &'static [(Kind, &'static str)];

/// Extensions and the patterns of their definitions, in the order tried. The name is the group `n`.
const LANGUAGES: &[(&str, Patterns)] = &[
    ("rs", RUST),
    ("py pyi", PYTHON),
    ("js jsx mjs cjs ts tsx mts cts vue svelte", SCRIPT),
    ("go", GO),
    ("c h cc cpp cxx hpp hh m mm cu", C),
    ("java kt kts cs scala swift dart groovy php", OBJECTS),
    ("rb ex exs lua cr jl", DEF),
    ("sh bash zsh fish", SHELL),
    ("sql", SQL),
    ("md mdx rst adoc markdown", HEADINGS),
    ("toml yaml yml json ini cfg conf mk proto tf graphql", KEYS),
];

const RUST: Patterns = &[
    (
        Kind::Function,
        r#"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:(?:default|async|const|unsafe|extern|"[^"]*")\s+)*fn\s+(?P<n>\w+)"#,
    ),
    (Kind::Type, r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:unsafe\s+)?(?:struct|enum|trait|union|type)\s+(?P<n>\w+)"),
    (Kind::Function, r"^\s*macro_rules!\s*(?P<n>\w+)"),
    (Kind::Constant, r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:const|static)\s+(?:mut\s+)?(?P<n>\w+)\s*:"),
    (Kind::Module, r"^\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+(?P<n>\w+)"),
    (Kind::Block, r"^\s*(?:unsafe\s+)?impl\b(?:<[^{]*>)?\s.*?\bfor\s+(?:[\w:]*::)?(?P<n>\w+)"),
    (Kind::Block, r"^\s*(?:unsafe\s+)?impl(?:<[^{]*>)?\s+(?:[\w:]*::)?(?P<n>\w+)"),
];

const PYTHON: Patterns = &[
    (Kind::Function, r"^\s*(?:async\s+)?def\s+(?P<n>\w+)"),
    (Kind::Type, r"^\s*class\s+(?P<n>\w+)"),
    (Kind::Constant, r"^(?P<n>[A-Za-z_]\w*)\s*(?::[^=]+)?=[^=]"),
    (Kind::Constant, r"^\s+(?P<n>[a-z_]\w*)\s*:\s*[A-Za-z][\w\[\], |.]*\s*(?:=.*)?$"),
];

const SCRIPT: Patterns = &[
    (Kind::Function, r"^\s*(?:export\s+)?(?:default\s+)?(?:declare\s+)?(?:async\s+)?function\s*\*?\s*(?P<n>[\w$]+)"),
    (
        Kind::Function,
        r"^\s*(?:export\s+)?(?:const|let|var)\s+(?P<n>[\w$]+)[^=]*=\s*(?:async\s*)?(?:function\b|\([^)]*$|\([^)]*\)[^=]*=>|[\w$]+\s*=>)",
    ),
    (
        Kind::Type,
        r"^\s*(?:export\s+)?(?:default\s+)?(?:declare\s+)?(?:abstract\s+)?(?:const\s+)?(?:class|interface|enum|type)\s+(?P<n>[\w$]+)",
    ),
    (Kind::Module, r"^\s*(?:export\s+)?(?:declare\s+)?(?:namespace|module)\s+(?P<n>[\w$]+)"),
    (
        Kind::Function,
        r"^\s*(?:module\.)?(?:exports|[\w$]+\.prototype)\.(?P<n>[\w$]+)\s*=\s*(?:async\s*)?(?:function|\()",
    ),
    (Kind::Constant, r"^\s*(?:export\s+)?(?:declare\s+)?(?:const|let|var)\s+(?P<n>[\w$]+)"),
    (
        Kind::Function,
        r"^\s+(?:(?:public|private|protected|static|async|get|set|override|readonly)\s+)*[*#]?(?P<n>[A-Za-z_$][\w$]*)\s*(?:<[^>]*>)?\([^;]*\)\s*(?::[^;{]+)?\{\s*$",
    ),
];

const GO: Patterns = &[
    (Kind::Function, r"^func\s+(?:\([^)]*\)\s*)?(?P<n>\w+)"),
    (Kind::Type, r"^\s*type\s+(?P<n>\w+)"),
    (Kind::Constant, r"^(?:var|const)\s+(?P<n>\w+)"),
    (Kind::Constant, r"^\t(?P<n>[A-Z]\w*)\s*(?:\w+\s*)?=\s"),
    (Kind::Module, r"^package\s+(?P<n>\w+)"),
];

const C: Patterns = &[
    (Kind::Constant, r"^\s*#\s*define\s+(?P<n>\w+)"),
    (
        Kind::Type,
        r"^\s*(?:typedef\s+)?(?:template\s*<[^>]*>\s*)?(?:struct|class|enum(?:\s+class)?|union)\s+(?P<n>\w+)[^;(]*$",
    ),
    (Kind::Module, r"^\s*namespace\s+(?P<n>\w+)"),
    (Kind::Type, r"^\s*(?:typedef\b.*?|using\s+)\b(?P<n>\w+)\s*(?:;|=)"),
    (Kind::Function, r"^[A-Za-z_][\w\s*&:<>,~]*?[\s*&:](?P<n>\w+)\s*\([^;]*$"),
];

const OBJECTS: Patterns = &[
    (
        Kind::Type,
        r"^\s*(?:[a-z@]\w*\s+)*?(?:class|interface|enum|record|object|struct|protocol|trait|extension|mixin)\s+(?P<n>\w+)",
    ),
    (Kind::Function, r"^\s*(?:[a-z@]\w*\s+)*?(?:fun|func|def|function)\s+(?:<[^>]*>\s*)?(?:\w+\.)?(?P<n>\w+)"),
    (
        Kind::Function,
        r"^\s*(?:(?:public|private|protected|internal|static|final|abstract|override|virtual|async|synchronized)\s+)+[\w<>\[\],.? ]*?(?P<n>\w+)\s*\(",
    ),
    (
        Kind::Constant,
        r"^\s*(?:(?:public|private|protected|internal|static|final|const|override|readonly|lateinit)\s+)*(?:val|var|let|const)\s+(?P<n>\w+)",
    ),
    (
        Kind::Constant,
        r"^\s*(?:(?:public|private|protected|internal|static|final|const|readonly)\s+)+[\w<>\[\],.?]+\s+(?P<n>\w+)\s*[=;]",
    ),
    (Kind::Module, r"^\s*(?:package|namespace)\s+(?P<n>[\w.\\]+)"),
];

const DEF: Patterns = &[
    (Kind::Function, r"^\s*(?:local\s+)?(?:def|defp|defmacro|function)\s+(?:self\.|[\w.]+[.:])?(?P<n>\w+[?!]?)"),
    (Kind::Type, r"^\s*(?:class|struct|defmodule|module|mutable struct)\s+(?:[\w]+(?:::|\.))*(?P<n>\w+)"),
    (Kind::Constant, r"^\s*(?P<n>[A-Z][A-Z0-9_]+)\s*="),
];

const SHELL: Patterns = &[
    (Kind::Function, r"^\s*function\s+(?P<n>[\w-]+)"),
    (Kind::Function, r"^\s*(?P<n>[\w-]+)\s*\(\)"),
    (Kind::Constant, r"^(?:export\s+|readonly\s+|declare\s+(?:-\w+\s+)?)?(?P<n>[A-Za-z_]\w*)="),
];

const SQL: Patterns = &[
    (
        Kind::Type,
        r#"(?i)^\s*create\s+(?:or\s+replace\s+)?(?:temp(?:orary)?\s+|materialized\s+|unique\s+)*(?:table|view|type|index)\s+(?:if\s+not\s+exists\s+)?["`\[]?(?:\w+\.)?["`\[]?(?P<n>\w+)"#,
    ),
    (Kind::Function, r"(?i)^\s*create\s+(?:or\s+replace\s+)?(?:function|procedure|trigger)\s+(?:\w+\.)?(?P<n>\w+)"),
];

const HEADINGS: Patterns = &[(Kind::Heading, r"^\s{0,3}(?:#{1,6}|={1,6})\s+(?P<n>.*\S)")];

const KEYS: Patterns = &[
    (Kind::Type, r"^\s*(?:message|service|enum|type|input|interface)\s+(?P<n>\w+)\s*(?:\{|$|@|implements)"),
    (Kind::Function, r"^\s*rpc\s+(?P<n>\w+)"),
    (Kind::Key, r"^\s*\[+(?P<n>[^\]]+)\]"),
    (Kind::Key, r#"^\s*(?:resource|variable|module|output)\s+"(?P<n>[^"]+)""#),
    (Kind::Key, r#"^\s*(?:- )?["']?(?P<n>[\w.$/-]+)["']?\s*[:=]"#),
];

/// Files without an extension: targets of a Makefile, functions of a script.
const PLAIN: Patterns = &[
    (Kind::Key, r"^(?P<n>[\w.-]+)\s*:(?:[^=]|$)"),
    (Kind::Function, r"^\s*(?:def|function|sub)\s+(?P<n>\w+)"),
    (Kind::Function, r"^(?P<n>[\w-]+)\s*\(\)\s*\{"),
];

/// Words that an indented `name(...) {` begins with without being a definition.
const CONTROL: &[&str] = &[
    "if", "for", "while", "switch", "catch", "return", "function", "else", "with", "match", "do", "new", "await",
    "describe", "it", "test", "expect", "require",
];

type Compiled = Vec<(&'static str, Vec<(Kind, Regex)>)>;

/// What the line of that file defines, if anything.
pub(super) fn definition<'a>(path: &str, line: &'a str) -> Option<Definition<'a>> {
    static COMPILED: LazyLock<Compiled> = LazyLock::new(|| {
        LANGUAGES.iter().chain([&("", PLAIN)]).map(|(extensions, patterns)| (*extensions, compile(patterns))).collect()
    });
    if line.len() > 500 {
        return None;
    }
    let extension = extension(path);
    let (_, patterns) = COMPILED
        .iter()
        .find(|(extensions, _)| extensions.split(' ').any(|known| known == extension))
        .or_else(|| COMPILED.last().filter(|_| extension.is_empty()))?;
    patterns.iter().find_map(|(kind, pattern)| {
        let name = pattern.captures(line)?.name("n")?.as_str();
        (!CONTROL.contains(&name)).then_some(Definition { kind: *kind, name })
    })
}

fn compile(patterns: Patterns) -> Vec<(Kind, Regex)> {
    let compiled =
        patterns.iter().map(|(kind, text)| (*kind, Regex::new(text).expect("a constant, compiled by a test")));
    compiled.collect()
}

pub(super) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

pub(super) fn extension(path: &str) -> &str {
    match file_name(path).rsplit_once('.') {
        Some((stem, extension)) if !stem.is_empty() => extension,
        _ => "",
    }
}

/// Whether a definition there is only visible in a few lines around it.
pub(super) fn is_local(path: &str, line: &str, kind: Kind) -> bool {
    let indented = line.starts_with([' ', '\t']);
    let scripts = ["js", "jsx", "mjs", "cjs", "ts", "tsx", "mts", "cts", "vue", "svelte"];
    indented && kind == Kind::Constant && scripts.contains(&extension(path))
}

/// What a file is for. Source is preferred unless something else is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FileClass {
    Source,
    Config,
    Example,
    Test,
    Document,
    /// Generated, vendored, locked: nobody writes there.
    Foreign,
}

impl FileClass {
    pub(super) fn of(path: &str) -> Self {
        let lower = path.to_lowercase();
        let name = file_name(&lower);
        let folder =
            |names: &[&str]| lower.rsplit_once('/').is_some_and(|(dir, _)| dir.split('/').any(|d| names.contains(&d)));
        let extension = extension(name);
        let stem = name.strip_suffix(extension).map_or(name, |stem| stem.trim_end_matches('.'));
        if folder(FOREIGN_FOLDERS) || extension == "lock" || FOREIGN_ENDS.iter().any(|end| name.ends_with(end)) {
            Self::Foreign
        } else if folder(&["tests", "test", "__tests__", "spec", "specs", "testdata", "fixtures", "e2e", "snapshots"])
            || stem.starts_with("test_")
            || ["_test", "_tests", ".test", ".spec", "_spec", "-test"].iter().any(|end| stem.ends_with(end))
            || ["tests", "test", "conftest"].contains(&stem)
        {
            Self::Test
        } else if ["md", "mdx", "rst", "adoc", "txt", "markdown", "html"].contains(&extension)
            || folder(&["docs", "doc"])
        {
            Self::Document
        } else if folder(&["examples", "example", "benches", "benchmarks", "bench", "demo", "demos", "samples"]) {
            Self::Example
        } else if ["toml", "yaml", "yml", "json", "ini", "cfg", "conf", "xml", "csv", "svg"].contains(&extension) {
            Self::Config
        } else {
            Self::Source
        }
    }
}

const FOREIGN_FOLDERS: &[&str] = &[
    "node_modules",
    "vendor",
    "vendored",
    "third_party",
    "third-party",
    "dist",
    "target",
    ".venv",
    "venv",
    "site-packages",
    "generated",
    "__generated__",
    "__pycache__",
    ".git",
];

const FOREIGN_ENDS: &[&str] = &[
    ".min.js",
    ".min.css",
    "-lock.json",
    "-lock.yaml",
    "go.sum",
    ".pb.go",
    "_pb2.py",
    ".generated.ts",
    ".map",
    ".snap",
];

/// The parts of a path: those of the folders and those of the file's name without its extension.
pub(super) fn path_parts(path: &str) -> (Vec<Part>, Vec<Part>) {
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| if stem.is_empty() { name } else { stem });
    (words::parts(folders), words::parts(stem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_of_a_line_is_known_in_each_language() {
        for (path, line, kind, name) in [
            ("a.rs", "pub(crate) async fn agent(ctx: &Ctx) {", Kind::Function, "agent"),
            ("a.rs", "    const fn as_str(self) -> &str {", Kind::Function, "as_str"),
            ("a.rs", "impl<T: Fn(u8)> fmt::Display for my::Limiter<T> {", Kind::Block, "Limiter"),
            ("a.rs", "macro_rules! tools {", Kind::Function, "tools"),
            ("a.rs", "pub(crate) const LIMIT: u32 = 3;", Kind::Constant, "LIMIT"),
            ("a.py", "async def agent(ctx, prompts: list[str]) -> str:", Kind::Function, "agent"),
            ("a.py", "MAX_FANOUT = 6", Kind::Constant, "MAX_FANOUT"),
            ("a.py", "    retries: int = 3", Kind::Constant, "retries"),
            ("a.ts", "export const useRetry = async (x: number) => {", Kind::Function, "useRetry"),
            ("a.ts", "  private async send<T>(x: T): Promise<void> {", Kind::Function, "send"),
            ("a.ts", "export default class Router {", Kind::Type, "Router"),
            ("a.ts", "export const LIMIT = 3;", Kind::Constant, "LIMIT"),
            ("a.go", "func (s *Server) Handle(w io.Writer) error {", Kind::Function, "Handle"),
            ("a.go", "type Server struct {", Kind::Type, "Server"),
            ("A.java", "    public static List<String> loadAll(Path p) {", Kind::Function, "loadAll"),
            ("A.kt", "data class Point(val x: Int)", Kind::Type, "Point"),
            ("a.c", "static int parse_header(const char *p)", Kind::Function, "parse_header"),
            ("a.h", "#define MAX_LEN 10", Kind::Constant, "MAX_LEN"),
            ("a.rb", "  def self.build!(x)", Kind::Function, "build!"),
            ("a.sh", "cleanup() {", Kind::Function, "cleanup"),
            ("a.sql", "CREATE TABLE IF NOT EXISTS public.users (", Kind::Type, "users"),
            ("a.md", "## The agent tool", Kind::Heading, "The agent tool"),
            ("a.yml", "  timeout: 3", Kind::Key, "timeout"),
            ("Makefile", "release: build", Kind::Key, "release"),
        ] {
            assert_eq!(definition(path, line), Some(Definition { kind, name }), "{path}: {line}");
        }
    }

    #[test]
    fn a_use_is_no_definition() {
        for (path, line) in [
            ("a.rs", "    let agent = agent(ctx);"),
            ("a.py", "    result = await agent(ctx)"),
            ("a.ts", "    if (agent(x)) {"),
            ("a.go", "\tagent(ctx)"),
            ("a.c", "    parse_header(p);"),
            ("a.c", "int parse_header(const char *p);"),
            ("a.md", "the function agent"),
        ] {
            assert_eq!(definition(path, line), None, "{path}: {line}");
        }
    }

    #[test]
    fn a_path_tells_what_the_file_is_for() {
        for (path, class) in [
            ("src/decode/tools/agent.py", FileClass::Source),
            ("tests/test_agent.py", FileClass::Test),
            ("pkg/server_test.go", FileClass::Test),
            ("web/app.spec.ts", FileClass::Test),
            ("docs/agent.md", FileClass::Document),
            ("Cargo.lock", FileClass::Foreign),
            ("web/node_modules/x/index.js", FileClass::Foreign),
            ("settings.yaml", FileClass::Config),
            ("examples/hello.rs", FileClass::Example),
            ("Makefile", FileClass::Source),
        ] {
            assert_eq!(FileClass::of(path), class, "{path}");
        }
    }
}
