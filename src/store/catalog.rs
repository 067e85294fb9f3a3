//! The catalog of personas: bundled, then the user's, then the project's; the later wins where it may.
//!
//! A file that cannot be used is named with line and reason and stops no other. Deliberately absent: the environment (the
//! directories are handed over), and how a file is read (`persona_file.rs`).

use std::path::{Path, PathBuf};

use crate::files;
use crate::model::persona::{Mode, Persona};
use crate::text;

use super::diagnostic::{Diagnostic, Severity};
use super::persona_file::{self, Dialect, Parsed};
use super::places::{Places, Standing};

/// A persona file larger than this is refused; the bundled ones have two kilobytes.
pub(crate) const FILE_LIMIT: u64 = 256 * 1024;

/// How deep a directory of personas is searched. People sort them into one level of folders.
const DEPTH: usize = 3;

const BUNDLED: [(&str, &str); 4] = [
    ("build.md", include_str!("../../agents/build.md")),
    ("plan.md", include_str!("../../agents/plan.md")),
    ("code-reviewer.md", include_str!("../../agents/code-reviewer.md")),
    ("explore.md", include_str!("../../agents/explore.md")),
];

/// Documents that lie beside personas and are none.
const DOCUMENTS: [&str; 6] = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE.md", "AGENTS.md", "CLAUDE.md"];

/// A persona with its prompt and where it is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) persona: Persona,
    /// The system prompt.
    pub(crate) prompt: String,
    pub(crate) source: Source,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    Bundled,
    /// In the user's own configuration.
    User(PathBuf),
    /// In the project: somebody else may have written it.
    Project(PathBuf),
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bundled => f.write_str("bundled"),
            Self::User(path) | Self::Project(path) => path.display().fmt(f),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CatalogError {
    #[error("no agent is named `{name}`; did you mean `{near}`?")]
    Misspelt { name: String, near: String },
    #[error("no agent is named `{name}`; there are {known}")]
    Unknown { name: String, known: String },
    /// The file is there and could not be used.
    #[error("agent `{name}` is not usable: {found}")]
    Broken { name: String, found: Diagnostic },
}

/// All personas of one invocation, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Catalog {
    /// Bundled first, then in the order found.
    pub(crate) entries: Vec<Entry>,
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// Sound files of the project that the user has not trusted as they are now.
    pub(crate) untrusted: Vec<PathBuf>,
}

impl Catalog {
    /// Reads all there is. Nothing here fails as a whole: what is wrong is in `diagnostics`.
    pub(crate) fn load(places: &Places) -> Self {
        let mut catalog = Self::default();
        for (file, text) in BUNDLED {
            let Parsed { persona, diagnostics } = persona_file::parse(Path::new(file), text, Dialect::Decode);
            catalog.diagnostics.extend(diagnostics);
            let found = persona.map(|(persona, prompt)| Entry { persona, prompt, source: Source::Bundled });
            catalog.entries.extend(found);
        }
        // Ours is read last of each layer, so that it wins over a persona for Claude Code of the same name.
        for (directory, dialect) in
            [(places.users_foreign_agents(), Dialect::ClaudeCode), (places.user_agents(), Dialect::Decode)]
        {
            let Some(directory) = directory else { continue };
            for found in catalog.read_directory(&directory, dialect, None) {
                let source = Source::User(found.path);
                catalog.put(Entry { persona: found.persona, prompt: found.prompt, source });
            }
            // What was written for another agent was hardly meant to replace one of ours.
            if dialect == Dialect::Decode {
                catalog.drop_replaced(&directory);
            }
        }
        for (directory, dialect) in
            [(places.foreign_agents(), Dialect::ClaudeCode), (places.project_agents(), Dialect::Decode)]
        {
            let Some(directory) = directory else { continue };
            for found in catalog.read_directory(&directory, dialect, places.project.as_deref()) {
                let standing = places.standing(&found.path, found.text.as_bytes());
                catalog.put_of_project(found, standing);
            }
        }
        catalog
    }

    pub(crate) fn get(&self, name: &str) -> Result<&Entry, CatalogError> {
        if let Some(entry) = self.entries.iter().find(|entry| entry.persona.name == name) {
            return Ok(entry);
        }
        let name = name.to_owned();
        let broken = self.diagnostics.iter().find(|found| {
            found.severity == Severity::Error && found.path.file_stem().is_some_and(|stem| stem == name.as_str())
        });
        if let Some(found) = broken {
            return Err(CatalogError::Broken { name, found: found.clone() });
        }
        let known = || self.entries.iter().map(|entry| entry.persona.name.as_str());
        Err(match text::closest(&name, known()) {
            Some(near) => CatalogError::Misspelt { near: near.to_owned(), name },
            None => CatalogError::Unknown { known: known().collect::<Vec<_>>().join(", "), name },
        })
    }

    /// A bundled persona that the user meant to replace does not come back because the file has a fault: it may do more
    /// than the one that was written.
    fn drop_replaced(&mut self, directory: &Path) {
        let broken: Vec<&std::ffi::OsStr> = self
            .diagnostics
            .iter()
            .filter(|found| found.severity == Severity::Error && found.path.starts_with(directory))
            .filter_map(|found| found.path.file_stem())
            .collect();
        self.entries.retain(|entry| {
            entry.source != Source::Bundled || !broken.iter().any(|stem| *stem == entry.persona.name.as_str())
        });
    }

    /// Adds a persona, in the place of one of the same name.
    fn put(&mut self, entry: Entry) {
        match self.entries.iter_mut().find(|other| other.persona.name == entry.persona.name) {
            Some(other) => *other = entry,
            None => self.entries.push(entry),
        }
    }

    /// Adds a persona of the project. Before the user trusts it, it replaces nothing of the user's and frees nothing.
    fn put_of_project(&mut self, found: Found, standing: Standing) {
        let Found { path, mut persona, prompt, text: _ } = found;
        if standing == Standing::NotTrusted {
            self.untrusted.push(path.clone());
        }
        let taken = self.entries.iter().find(|other| other.persona.name == persona.name);
        match (standing, taken.map(|other| &other.source)) {
            (Standing::NotTrusted, Some(Source::Bundled | Source::User(_))) => {
                let message = format!("`{}` is taken; a project replaces it only when it is trusted", persona.name);
                let found = Diagnostic::new(&path, 1, Severity::Warning, message);
                self.diagnostics.push(found.with_fix("look at it with `decode trust`, or give it another name"));
                return;
            }
            (_, Some(Source::Project(other))) => {
                let message = format!("`{}` replaces the one of `{}`", persona.name, other.display());
                self.diagnostics.push(Diagnostic::new(&path, 1, Severity::Note, message));
            }
            (Standing::NotTrusted, None) | (Standing::Trusted, _) => {}
        }
        if standing == Standing::NotTrusted {
            self.diagnostics.extend(narrow(&mut persona, &path));
        }
        self.put(Entry { persona, prompt, source: Source::Project(path) });
    }

    /// The usable personas of a directory in the order of their paths; a missing directory has none.
    fn read_directory(&mut self, directory: &Path, dialect: Dialect, project: Option<&Path>) -> Vec<Found> {
        let mut all: Vec<Found> = Vec::new();
        for path in self.files_in(directory, project) {
            let text = match files::read(&path, FILE_LIMIT) {
                Ok(text) => text,
                Err(error) => {
                    self.diagnostics.push(Diagnostic::new(&path, 1, Severity::Error, error.to_string()));
                    continue;
                }
            };
            let Parsed { persona, diagnostics } = persona_file::parse(&path, &text, dialect);
            self.diagnostics.extend(diagnostics);
            let Some((persona, prompt)) = persona else { continue };
            if let Some(first) = all.iter().find(|first| first.persona.name == persona.name) {
                let message = format!("`{}` is already in `{}`, which is used", persona.name, first.path.display());
                let found = Diagnostic::new(&path, 1, Severity::Warning, message);
                self.diagnostics.push(found.with_fix("rename or remove one of the two"));
            } else {
                all.push(Found { path, persona, prompt, text });
            }
        }
        all
    }

    /// The Markdown files of a directory that may be personas, sorted. Links are followed, but not out of a project.
    fn files_in(&mut self, directory: &Path, project: Option<&Path>) -> Vec<PathBuf> {
        let project = project.and_then(|project| project.canonicalize().ok());
        let walk = walkdir::WalkDir::new(directory)
            .max_depth(DEPTH)
            .follow_links(true)
            .sort_by_file_name()
            .into_iter()
            .filter_entry(|entry| entry.depth() == 0 || !is_hidden(entry.file_name()));
        let mut paths = Vec::new();
        for entry in walk {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    // No directory is the usual case, and no finding.
                    if error.depth() > 0 {
                        let path = error.path().unwrap_or(directory).to_owned();
                        self.diagnostics.push(Diagnostic::new(&path, 1, Severity::Warning, error.to_string()));
                    }
                    continue;
                }
            };
            let path = entry.path();
            if !entry.file_type().is_file() || !may_be_persona(path) {
                continue;
            }
            let outside = |project: &Path| path.canonicalize().is_ok_and(|real| !real.starts_with(project));
            if project.as_deref().is_some_and(outside) {
                let message = "skipped: it is a link to a file outside of the project";
                self.diagnostics.push(Diagnostic::new(path, 1, Severity::Warning, message));
                continue;
            }
            paths.push(entry.into_path());
        }
        paths
    }
}

/// A usable persona and its file.
struct Found {
    path: PathBuf,
    persona: Persona,
    prompt: String,
    /// The file as it was read: what trust is held against.
    text: String,
}

/// Takes from a persona what only a trusted project may give: a mode that asks less, and rules that allow.
fn narrow(persona: &mut Persona, path: &Path) -> Vec<Diagnostic> {
    let note =
        |message: String| Diagnostic::new(path, 1, Severity::Note, message).with_fix("the project is not trusted");
    let mut notes = Vec::new();
    match persona.mode {
        Mode::Edit | Mode::Bypass => {
            notes.push(note(format!("`{}`: mode {} is taken as default", persona.name, persona.mode)));
            persona.mode = Mode::Default;
        }
        Mode::Default | Mode::Plan => {}
    }
    if !persona.allow.is_empty() {
        let rules: Vec<String> = persona.allow.iter().map(ToString::to_string).collect();
        notes.push(note(format!("`{}`: allowing {} is ignored", persona.name, rules.join(", "))));
        persona.allow.clear();
    }
    notes
}

fn may_be_persona(path: &Path) -> bool {
    let markdown = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("md"));
    markdown && !is_document(path)
}

/// Whether a file is for people and no persona, by its name.
pub(super) fn is_document(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    DOCUMENTS.iter().any(|document| name.eq_ignore_ascii_case(document))
}

fn is_hidden(name: &std::ffi::OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

/// What is wrong with one file, for its author; an empty list means that it loads as written.
pub(crate) fn check(path: &Path, text: &str) -> Vec<Diagnostic> {
    persona_file::parse(path, text, Dialect::of(path)).diagnostics
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tool_name::ToolName;
    use crate::store::places::Trust;
    use crate::store::project::tests::trust_in_all;

    /// Whether the user has said yes to all of the project as it is.
    #[derive(Clone, Copy)]
    enum Project {
        Trusted,
        NotTrusted,
    }

    struct Fixture {
        root: tempfile::TempDir,
    }

    impl Fixture {
        fn new() -> Self {
            Self { root: tempfile::tempdir().unwrap() }
        }

        fn file(&self, path: &str, text: &str) -> PathBuf {
            let path = self.root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            path
        }

        fn load(&self, project: Project) -> Catalog {
            let at = |name: &str| self.root.path().join(name);
            std::fs::create_dir_all(at("project")).unwrap();
            let trust = match project {
                Project::Trusted => trust_in_all(&at("project")),
                Project::NotTrusted => Trust::default(),
            };
            Catalog::load(&Places {
                user: Some(at("user")),
                home: Some(at("home")),
                project: Some(at("project")),
                trust,
            })
        }
    }

    fn agent(name: &str, more: &str) -> String {
        format!("---\nname: {name}\ndescription: d\n{more}\n---\nYou are {name}.\n")
    }

    #[test]
    fn four_personas_are_bundled_and_sound() {
        let catalog = Catalog::load(&Places::default());
        assert_eq!(catalog.diagnostics, []);
        let names: Vec<&str> = catalog.entries.iter().map(|entry| entry.persona.name.as_str()).collect();
        assert_eq!(names, ["build", "plan", "code-reviewer", "explore"]);
        let explore = catalog.get("explore").unwrap();
        assert_eq!(explore.persona.tools, [ToolName::Read, ToolName::Glob, ToolName::Grep, ToolName::Lsp]);
        assert!(explore.persona.subagent && explore.persona.only_reads());
        assert!(explore.prompt.contains("Your final message IS your report."));
        assert_eq!(catalog.get("build").unwrap().persona.tools.len(), 15);
        assert!(catalog.get("plan").unwrap().persona.only_reads());
        assert_eq!(catalog.get("code-reviewer").unwrap().persona.allow, ["bash(git *)".parse().unwrap()]);
    }

    #[test]
    fn a_bundled_agent_does_not_come_back_for_a_broken_one_of_the_user() {
        let fixture = Fixture::new();
        let narrow = agent("build", "tools: [Read");
        fixture.file("project/.decode/agents/build.md", &narrow);
        assert_eq!(
            fixture.load(Project::NotTrusted).get("build").unwrap().source,
            Source::Bundled,
            "a project takes nothing"
        );
        fixture.file("user/agents/build.md", &narrow);
        let catalog = fixture.load(Project::NotTrusted);
        assert!(matches!(catalog.get("build"), Err(CatalogError::Broken { .. })));
        assert!(catalog.get("explore").is_ok());
    }

    #[test]
    fn one_broken_file_stops_no_other_and_documents_are_no_agents() {
        let fixture = Fixture::new();
        for name in ["one", "two", "three"] {
            fixture.file(&format!("project/.claude/agents/{name}.md"), &agent(name, "tools: Read"));
        }
        fixture.file("project/.claude/agents/README.md", "# Agents\n");
        fixture.file("project/.claude/agents/.github/CONTRIBUTING.md", "# How to\n");
        let broken = fixture.file("project/.claude/agents/broken.md", &agent("broken", "tools: [Read"));
        let catalog = fixture.load(Project::NotTrusted);
        assert_eq!(catalog.entries.len(), 4 + 3);
        assert_eq!(catalog.diagnostics.len(), 1, "{:?}", catalog.diagnostics);
        assert_eq!((&catalog.diagnostics[0].path, catalog.diagnostics[0].severity), (&broken, Severity::Error));
        assert!(matches!(catalog.get("broken"), Err(CatalogError::Broken { .. })));
    }

    #[test]
    fn notes_without_front_matter_are_listed_as_skipped() {
        let fixture = Fixture::new();
        let notes = fixture.file("project/.claude/agents/notes.md", "# Heading\n");
        let catalog = fixture.load(Project::Trusted);
        assert_eq!(catalog.entries.len(), 4);
        assert_eq!(catalog.diagnostics.len(), 1);
        assert_eq!((&catalog.diagnostics[0].path, catalog.diagnostics[0].severity), (&notes, Severity::Note));
    }

    #[test]
    fn of_two_with_one_name_the_first_path_is_used_and_both_are_named() {
        let fixture = Fixture::new();
        let first = fixture.file("user/agents/a/x.md", &agent("dup", "tools: [read]"));
        let second = fixture.file("user/agents/b/x.md", &agent("dup", "tools: [read, bash]"));
        for _ in 0..20 {
            let catalog = fixture.load(Project::NotTrusted);
            assert_eq!(catalog.get("dup").unwrap().source, Source::User(first.clone()));
            assert_eq!(catalog.diagnostics.len(), 1);
            let told = catalog.diagnostics[0].to_string();
            assert!(told.contains(first.to_str().unwrap()) && told.contains(second.to_str().unwrap()), "{told}");
        }
    }

    #[test]
    fn the_users_persona_replaces_a_bundled_one() {
        let fixture = Fixture::new();
        let path = fixture.file("user/agents/explore.md", &agent("explore", "tools: [read]\nmode: bypass"));
        let catalog = fixture.load(Project::NotTrusted);
        let entry = catalog.get("explore").unwrap();
        assert_eq!((&entry.source, entry.persona.mode), (&Source::User(path), Mode::Bypass));
        assert_eq!(catalog.entries.len(), 4);
    }

    #[test]
    fn a_project_that_is_not_trusted_replaces_nothing_and_frees_nothing() {
        let fixture = Fixture::new();
        fixture.file("project/.decode/agents/build.md", &agent("build", "tools: [read]"));
        let more = "tools: [read, 'bash(git *)']\nmode: bypass\nallow: ['write(*)']\ndeny: ['read(x)']";
        fixture.file("project/.decode/agents/mine.md", &agent("mine", more));
        let catalog = fixture.load(Project::NotTrusted);
        assert_eq!(catalog.get("build").unwrap().source, Source::Bundled);
        let mine = &catalog.get("mine").unwrap().persona;
        assert_eq!((mine.mode, mine.allow.len(), mine.deny.len()), (Mode::Default, 0, 1));
        assert_eq!(catalog.diagnostics.len(), 3, "{:?}", catalog.diagnostics);

        let catalog = fixture.load(Project::Trusted);
        assert_eq!(catalog.get("build").unwrap().persona.tools, [ToolName::Read]);
        let mine = &catalog.get("mine").unwrap().persona;
        assert_eq!((mine.mode, mine.allow.len()), (Mode::Bypass, 2));
    }

    #[test]
    fn a_file_that_changed_after_it_was_trusted_is_not_trusted() {
        let fixture = Fixture::new();
        let path = fixture.file("project/.decode/agents/build.md", &agent("build", "tools: [read]"));
        let project = fixture.root.path().join("project");
        let places = |trust| Places { project: Some(project.clone()), trust, ..Places::default() };
        let trust = trust_in_all(&project);
        let catalog = Catalog::load(&places(trust.clone()));
        assert_eq!(catalog.get("build").unwrap().source, Source::Project(path.clone()));
        assert_eq!(catalog.untrusted, Vec::<PathBuf>::new());
        fixture.file("project/.decode/agents/build.md", &agent("build", "tools: [read]\nmode: bypass"));
        let catalog = Catalog::load(&places(trust));
        assert_eq!(catalog.get("build").unwrap().source, Source::Bundled);
        assert_eq!(catalog.untrusted, [path]);
    }

    #[test]
    fn the_users_personas_for_claude_code_are_there_and_ours_win() {
        let fixture = Fixture::new();
        fixture.file("home/.claude/agents/x.md", &agent("x", "tools: Read, Bash"));
        fixture.file("home/.claude/agents/y.md", &agent("y", "tools: Read, Bash\nmodel: haiku"));
        fixture.file("home/.claude/agents/build.md", "---\nname: [build\n---\nx\n");
        let ours = fixture.file("user/agents/x.md", &agent("x", "tools: [read]"));
        let catalog = fixture.load(Project::NotTrusted);
        assert_eq!(catalog.get("x").unwrap().source, Source::User(ours));
        assert_eq!(catalog.get("y").unwrap().persona.model.as_deref(), Some("cheap"));
        assert_eq!(catalog.get("build").unwrap().source, Source::Bundled);
        assert_eq!(catalog.diagnostics.len(), 1, "{:?}", catalog.diagnostics);
    }

    #[test]
    fn our_directory_wins_over_that_of_claude_code() {
        let fixture = Fixture::new();
        fixture.file("project/.claude/agents/x.md", &agent("x", "tools: Read, Bash"));
        fixture.file("project/.decode/agents/x.md", &agent("x", "tools: [read]"));
        let catalog = fixture.load(Project::NotTrusted);
        assert_eq!(catalog.get("x").unwrap().persona.tools, [ToolName::Read]);
        assert_eq!(catalog.diagnostics.len(), 1);
    }

    #[test]
    fn a_project_cannot_link_to_a_file_outside_of_it() {
        let fixture = Fixture::new();
        let secret = fixture.file("secret.md", &agent("x", "tools: [read]"));
        fixture.file("project/.decode/agents/y.md", &agent("y", "tools: [read]"));
        std::os::unix::fs::symlink(&secret, fixture.root.path().join("project/.decode/agents/x.md")).unwrap();
        let catalog = fixture.load(Project::Trusted);
        assert!(catalog.get("x").is_err() && catalog.get("y").is_ok());
        assert_eq!(catalog.diagnostics.len(), 1);
    }

    #[test]
    fn a_misspelt_name_gets_a_proposal() {
        let catalog = Catalog::load(&Places::default());
        let error = catalog.get("exlpore").unwrap_err().to_string();
        assert_eq!(error, "no agent is named `exlpore`; did you mean `explore`?");
        let error = catalog.get("refactor").unwrap_err().to_string();
        assert_eq!(error, "no agent is named `refactor`; there are build, plan, code-reviewer, explore");
    }

    #[test]
    fn checking_a_file_tells_its_author_what_loading_would() {
        let found = check(Path::new("agents/x.md"), &agent("x", "tools: [read]\ntool: y"));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 5);
        assert_eq!(check(Path::new("agents/x.md"), &agent("x", "tools: [read]")), []);
    }
}
