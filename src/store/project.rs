//! What the user decided about a project: which of its files may act, and the rules that were answered with "always".
//!
//! One file a project under the state root, where no tool and no repository can write: the rules in its header, the
//! trusted files with their hashes in its body. Deliberately absent: what the files do once they may, and who is asked.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::StateRoot;
use super::digests::{self, Digests};
use super::places::{Trust, top_of};
use crate::files::{self, Durability, FileError, Locked};
use crate::front_matter::{self, FrontMatterError};
use crate::model::rule::Rule;
use crate::model::time::Timestamp;

/// A record larger than this is none of ours: a thousand files are a hundred kilobytes.
const RECORD_LIMIT: u64 = 4 * 1024 * 1024;

/// Folders of a project whose content acts.
const ACTING: [&str; 4] = [".decode", ".claude/agents", ".claude/skills", ".agents/skills"];

/// More files than this are nothing that a person reads before saying yes.
const FILES: usize = 1_000;
/// The largest single file that is looked at.
const FILE_LIMIT: u64 = 16 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ProjectError {
    #[error("failed to keep what was decided about the project")]
    File(#[from] FileError),
    #[error("failed to lock `{path}`")]
    Lock { path: PathBuf, source: std::io::Error },
    #[error("`{path}`, which holds what was decided about this project, is damaged")]
    Damaged { path: PathBuf },
    #[error("`{path}` has version {v}; this decode knows {known}")]
    Newer { path: PathBuf, v: u32, known: u32 },
    #[error("more than {FILES} files of `{project}` would act; that is more than anybody can look at")]
    TooMany { project: PathBuf },
    #[error("failed to look at `{path}`: {why}")]
    Unsound { path: PathBuf, why: String },
}

/// All that was decided about one project. Nothing was, where there is no file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Project {
    pub(crate) trust: Trust,
    /// Rules that a person answered with "always".
    pub(crate) allow: Vec<Rule>,
    pub(crate) deny: Vec<Rule>,
}

/// What a remembered rule does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Allow,
    #[cfg_attr(not(test), expect(dead_code, reason = "no answer denies for good yet; a record may"))]
    Deny,
}

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    v: u32,
    /// For people: the file's name is a hash.
    project: String,
    at: Timestamp,
    #[serde(default)]
    allow: Vec<Rule>,
    #[serde(default)]
    deny: Vec<Rule>,
}

const VERSION: u32 = 1;

/// What was decided about the project that `directory` belongs to.
pub(crate) fn load(state: &StateRoot, directory: &Path) -> Result<Project, ProjectError> {
    let path = record(state, directory);
    let text = match files::read(&path, RECORD_LIMIT) {
        Ok(text) => text,
        Err(error) if error.is_missing() => return Ok(Project::default()),
        Err(error) => return Err(error.into()),
    };
    parse(path, &text)
}

fn parse(path: PathBuf, text: &str) -> Result<Project, ProjectError> {
    let read: Result<(Header, &str), FrontMatterError> = front_matter::read(text);
    let Ok((header, body)) = read else { return Err(ProjectError::Damaged { path }) };
    if header.v > VERSION {
        return Err(ProjectError::Newer { path, v: header.v, known: VERSION });
    }
    match Digests::parse(body) {
        Some(files) => Ok(Project { trust: Trust::in_files(files), allow: header.allow, deny: header.deny }),
        None => Err(ProjectError::Damaged { path }),
    }
}

/// Trusts exactly these files, with the content they were shown with, and no others.
pub(crate) fn trust(state: &StateRoot, directory: &Path, seen: Digests, at: Timestamp) -> Result<(), ProjectError> {
    change(state, directory, at, |project| project.trust = Trust::in_files(seen))
}

/// Remembers a rule for the project. One that is known already stays as it is.
pub(crate) fn remember_rule(
    state: &StateRoot,
    directory: &Path,
    rule: &Rule,
    effect: Effect,
    at: Timestamp,
) -> Result<(), ProjectError> {
    change(state, directory, at, |project| {
        let rules = match effect {
            Effect::Allow => &mut project.allow,
            Effect::Deny => &mut project.deny,
        };
        if !rules.contains(rule) {
            rules.push(rule.clone());
        }
    })
}

/// Takes everything back: trust, and what was remembered. What there was.
pub(crate) fn revoke(state: &StateRoot, directory: &Path) -> Result<Project, ProjectError> {
    let _lock = lock(state)?;
    let path = record(state, directory);
    // What is damaged is taken back all the same.
    let before = load(state, directory).unwrap_or_default();
    match std::fs::remove_file(&path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => Err(FileError::Write { path, source }.into()),
        Ok(()) | Err(_) => Ok(before),
    }
}

fn change(
    state: &StateRoot,
    directory: &Path,
    at: Timestamp,
    make: impl FnOnce(&mut Project),
) -> Result<(), ProjectError> {
    let _lock = lock(state)?;
    let mut project = load(state, directory)?;
    make(&mut project);
    let Project { trust, allow, deny } = project;
    let shown = top_of(directory).display().to_string();
    let header = Header { v: VERSION, project: shown, at, allow, deny };
    let text = front_matter::write(&header, &trust.files().to_string());
    let path = record(state, directory);
    // A header that its reader would refuse is refused here, while the record before is still whole.
    parse(path.clone(), &text)?;
    Ok(files::write(&path, text.as_bytes(), Durability::Synced)?)
}

/// One writer at a time: two answers of "always" must not lose one of them.
fn lock(state: &StateRoot) -> Result<Locked, ProjectError> {
    let directory = state.projects();
    let wrong = |source| ProjectError::Lock { path: state.projects(), source };
    std::fs::create_dir_all(&directory).map_err(wrong)?;
    let options = std::fs::File::options().create(true).truncate(false).write(true).open(directory.join("lock"));
    options.and_then(Locked::when_free).map_err(wrong)
}

/// The file of a project, named after its path, so that a copy elsewhere is another project.
fn record(state: &StateRoot, directory: &Path) -> PathBuf {
    let top = std::fs::canonicalize(top_of(directory)).unwrap_or_else(|_| top_of(directory).to_owned());
    let digest = digests::of(top.as_os_str().as_encoded_bytes());
    state.projects().join(format!("{}.md", &digest[..32]))
}

/// Whether the project has any of the folders that act. Three looks, no file is opened.
pub(crate) fn brings_something(project: &Path) -> bool {
    ACTING.iter().any(|folder| project.join(folder).is_dir())
}

/// A file of the project that would act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Acting {
    /// Relative to the project.
    pub(crate) path: String,
    pub(crate) digest: String,
    pub(crate) kind: Kind,
}

/// What an acting file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Persona,
    Skill,
    /// Lies beside a skill, which may have it read or run.
    SkillFile,
    Settings,
    Recipe,
    /// A Python program of `jobs/`.
    Program,
    Other,
}

impl Kind {
    fn of(path: &Path) -> Self {
        let in_folder = |name: &str| path.parent().is_some_and(|parent| parent.iter().any(|part| part == name));
        match path.file_name().and_then(|name| name.to_str()) {
            Some("settings.yaml") if path.parent() == Some(Path::new(".decode")) => Self::Settings,
            Some("SKILL.md") if in_folder("skills") => Self::Skill,
            Some(_) | None if in_folder("skills") => Self::SkillFile,
            Some(_) | None if in_folder("agents") => Self::Persona,
            Some(_) | None if in_folder("workspaces") => Self::Recipe,
            Some(_) | None if in_folder("jobs") => Self::Program,
            Some(_) | None => Self::Other,
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Persona => "persona",
            Self::Skill => "skill",
            Self::SkillFile => "file of a skill",
            Self::Settings => "settings",
            Self::Recipe => "recipe",
            Self::Program => "program",
            Self::Other => "file",
        })
    }
}

/// Every file of a project that would act, in the order of their paths. What cannot be looked at whole is an error:
/// nobody can say yes to what was not shown.
pub(crate) fn survey(project: &Path) -> Result<Vec<Acting>, ProjectError> {
    let real = project.canonicalize().map_err(|error| unsound(project, error.to_string()))?;
    let mut found: Vec<Acting> = Vec::new();
    for folder in ACTING.iter().map(|folder| project.join(folder)).filter(|folder| folder.is_dir()) {
        let walk = walkdir::WalkDir::new(&folder).follow_links(true).sort_by_file_name().into_iter();
        for entry in walk.filter_entry(|entry| entry.file_name() != ".git") {
            let entry = entry.map_err(|error| {
                let path = error.path().unwrap_or(&folder).to_owned();
                unsound(&path, error.to_string())
            })?;
            if entry.file_type().is_dir() || is_document(entry.path()) {
                continue;
            }
            // Links out of the project are followed by nobody who reads these files, so they do not act.
            if !entry.path().canonicalize().is_ok_and(|path| path.starts_with(&real)) {
                continue;
            }
            if found.len() == FILES {
                return Err(ProjectError::TooMany { project: project.to_owned() });
            }
            found.push(look(project, entry.path())?);
        }
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

fn look(project: &Path, path: &Path) -> Result<Acting, ProjectError> {
    let relative = path.strip_prefix(project).unwrap_or(path);
    let name = relative.to_str().filter(|name| !name.chars().any(char::is_control));
    let Some(name) = name else { return Err(unsound(path, "its name is no plain text".to_owned())) };
    let content = files::read_bytes(path, FILE_LIMIT)?;
    Ok(Acting { path: name.to_owned(), digest: digests::of(&content), kind: Kind::of(relative) })
}

fn unsound(path: &Path, why: String) -> ProjectError {
    ProjectError::Unsound { path: path.to_owned(), why }
}

/// Texts for people that lie beside personas.
fn is_document(path: &Path) -> bool {
    let among_agents = path.parent().is_some_and(|parent| parent.iter().any(|part| part == "agents"));
    among_agents && !path.ends_with("SKILL.md") && super::catalog::is_document(path)
}

/// The hashes of what was surveyed.
pub(crate) fn digests_of(acting: &[Acting]) -> Digests {
    let mut all = Digests::default();
    for file in acting {
        all.insert(&file.path, file.digest.clone());
    }
    all
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::places::Standing;
    use super::*;

    /// Trust in all that a project has now.
    pub(crate) fn trust_in_all(project: &Path) -> Trust {
        Trust::in_files(digests_of(&survey(project).unwrap()))
    }

    struct Fixture {
        root: tempfile::TempDir,
        state: StateRoot,
    }

    impl Fixture {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            let state = StateRoot::at(root.path().join("state"));
            let fixture = Self { root, state };
            fixture.file(".decode/agents/x.md", "x");
            fixture
        }

        fn project(&self) -> PathBuf {
            self.root.path().join("project")
        }

        fn file(&self, path: &str, text: &str) {
            let path = self.project().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }

        fn surveyed(&self) -> Vec<(String, Kind)> {
            survey(&self.project()).unwrap().into_iter().map(|file| (file.path, file.kind)).collect()
        }
    }

    const NOW: Timestamp = Timestamp::from_millis(1_796_074_899_007);

    fn rule(text: &str) -> Rule {
        text.parse().unwrap()
    }

    #[test]
    fn every_file_that_acts_is_found_and_documents_are_not() {
        let fixture = Fixture::new();
        for path in [
            ".claude/agents/y.md",
            ".claude/agents/README.md",
            ".claude/skills/s/SKILL.md",
            ".claude/skills/s/scripts/run.sh",
            ".claude/settings.json",
            ".agents/skills/t/SKILL.md",
            ".decode/settings.yaml",
            ".decode/workspaces/w.md",
            ".decode/jobs/j.py",
            ".decode/other",
            "AGENTS.md",
            "src/lib.rs",
        ] {
            fixture.file(path, path);
        }
        let want = [
            (".agents/skills/t/SKILL.md", Kind::Skill),
            (".claude/agents/y.md", Kind::Persona),
            (".claude/skills/s/SKILL.md", Kind::Skill),
            (".claude/skills/s/scripts/run.sh", Kind::SkillFile),
            (".decode/agents/x.md", Kind::Persona),
            (".decode/jobs/j.py", Kind::Program),
            (".decode/other", Kind::Other),
            (".decode/settings.yaml", Kind::Settings),
            (".decode/workspaces/w.md", Kind::Recipe),
        ];
        assert_eq!(fixture.surveyed(), want.map(|(path, kind)| (path.to_owned(), kind)));
    }

    #[test]
    fn a_link_out_of_the_project_is_not_trusted_and_a_link_inside_is_by_its_content() {
        let fixture = Fixture::new();
        let outside = fixture.root.path().join("outside.md");
        std::fs::write(&outside, "x").unwrap();
        fixture.file("docs/persona.md", "inside");
        std::os::unix::fs::symlink(outside, fixture.project().join(".decode/agents/out.md")).unwrap();
        std::os::unix::fs::symlink("../../docs/persona.md", fixture.project().join(".decode/agents/in.md")).unwrap();
        let paths: Vec<String> = fixture.surveyed().into_iter().map(|(path, _)| path).collect();
        assert_eq!(paths, [".decode/agents/in.md", ".decode/agents/x.md"]);
        let trust = trust_in_all(&fixture.project());
        assert_eq!(trust.of(Path::new(".decode/agents/in.md"), b"inside"), Standing::Trusted);
    }

    #[test]
    fn what_was_decided_is_read_back_and_nobody_else_can_read_it() {
        let fixture = Fixture::new();
        assert_eq!(load(&fixture.state, &fixture.project()).unwrap(), Project::default());
        let seen = digests_of(&survey(&fixture.project()).unwrap());
        trust(&fixture.state, &fixture.project(), seen.clone(), NOW).unwrap();
        remember_rule(&fixture.state, &fixture.project(), &rule("bash(cargo test)"), Effect::Allow, NOW).unwrap();
        remember_rule(&fixture.state, &fixture.project(), &rule("bash(cargo test)"), Effect::Allow, NOW).unwrap();
        remember_rule(&fixture.state, &fixture.project(), &rule("read(x)"), Effect::Deny, NOW).unwrap();
        let project = load(&fixture.state, &fixture.project()).unwrap();
        assert_eq!(project.trust, Trust::in_files(seen));
        assert_eq!((project.allow, project.deny), (vec![rule("bash(cargo test)")], vec![rule("read(x)")]));
        let path = record(&fixture.state, &fixture.project());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.starts_with("---\nv: 1\nproject: ") && text.ends_with("  .decode/agents/x.md\n"), "{text}");
    }

    #[test]
    fn a_folder_inside_means_its_project_and_a_copy_elsewhere_is_another() {
        let fixture = Fixture::new();
        fixture.file("src/deep/lib.rs", "");
        let inside = fixture.project().join("src/deep");
        remember_rule(&fixture.state, &inside, &rule("bash(make)"), Effect::Allow, NOW).unwrap();
        assert_eq!(load(&fixture.state, &fixture.project()).unwrap().allow, [rule("bash(make)")]);
        let copy = fixture.root.path().join("copy");
        std::fs::create_dir_all(copy.join(".decode")).unwrap();
        assert_eq!(load(&fixture.state, &copy).unwrap(), Project::default());
    }

    #[test]
    fn many_answers_at_once_lose_none() {
        let fixture = Fixture::new();
        std::thread::scope(|scope| {
            for number in 0..16 {
                let fixture = &fixture;
                scope.spawn(move || {
                    let rule = rule(&format!("bash(task {number})"));
                    remember_rule(&fixture.state, &fixture.project(), &rule, Effect::Allow, NOW).unwrap();
                });
            }
        });
        assert_eq!(load(&fixture.state, &fixture.project()).unwrap().allow.len(), 16);
    }

    #[test]
    fn what_is_revoked_is_gone_also_when_it_was_damaged() {
        let fixture = Fixture::new();
        remember_rule(&fixture.state, &fixture.project(), &rule("write"), Effect::Allow, NOW).unwrap();
        assert_eq!(revoke(&fixture.state, &fixture.project()).unwrap().allow, [rule("write")]);
        assert_eq!(load(&fixture.state, &fixture.project()).unwrap(), Project::default());
        std::fs::write(record(&fixture.state, &fixture.project()), "garbage").unwrap();
        assert!(matches!(load(&fixture.state, &fixture.project()), Err(ProjectError::Damaged { .. })));
        revoke(&fixture.state, &fixture.project()).unwrap();
        assert_eq!(load(&fixture.state, &fixture.project()).unwrap(), Project::default());
        revoke(&fixture.state, &fixture.project()).unwrap();
    }

    #[test]
    fn a_record_of_a_later_decode_is_refused_and_an_unknown_key_is_not() {
        let path = || PathBuf::from("x.md");
        let text = "---\nv: 1\nproject: /p\nat: 2026-11-30T12:34:59.007Z\nlater: x\n---\n";
        assert_eq!(parse(path(), text).unwrap(), Project::default());
        assert!(matches!(parse(path(), &text.replace("v: 1", "v: 2")), Err(ProjectError::Newer { v: 2, .. })));
        assert!(matches!(parse(path(), &format!("{text}half a line")), Err(ProjectError::Damaged { .. })));
    }

    #[test]
    fn more_files_than_a_person_reads_are_refused() {
        let fixture = Fixture::new();
        for number in 0..FILES {
            fixture.file(&format!(".decode/many/{number}"), "");
        }
        assert!(matches!(survey(&fixture.project()), Err(ProjectError::TooMany { .. })));
    }

    #[test]
    fn a_pipe_among_the_files_is_refused_and_not_waited_for() {
        let fixture = Fixture::new();
        let pipe = fixture.project().join(".decode/pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        assert!(survey(&fixture.project()).is_err());
    }
}
