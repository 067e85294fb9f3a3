//! The skills there are: bundled, then the user's, then the project's; the later wins where it may.
//!
//! A file that cannot be used is named with line and reason and stops no other. A skill of the project is known by
//! name before the user trusts it, and neither shown to a model nor loaded. Deliberately absent: the environment, how
//! a file is read (`skill_file.rs`), and what a model is told (`model/skill.rs`).

use std::path::{Path, PathBuf};

use super::catalog::Source;
use super::diagnostic::{Diagnostic, Severity};
use super::places::{Places, Standing};
use super::skill_file::{self, Parsed};
use crate::files;
use crate::model::skill::{Callers, Skill};
use crate::text;

/// A skill file larger than this is refused; the specification asks for twenty kilobytes.
pub(crate) const FILE_LIMIT: u64 = 256 * 1024;
/// The largest file beside a skill that is looked at.
const SIBLING_LIMIT: u64 = 16 * 1024 * 1024;
/// Files beside a skill that are looked at; more is a project, not a skill.
const SIBLINGS: usize = 1_000;

/// The name every skill file has.
const FILE: &str = "SKILL.md";

/// The skills that come with decode: name and file.
pub(crate) const BUNDLED: [(&str, &str); 2] = [
    ("subagent-tmux", include_str!("../../skills/subagent-tmux/SKILL.md")),
    ("review-swarm", include_str!("../../skills/review-swarm/SKILL.md")),
];

/// A usable skill and where it is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) skill: Skill,
    pub(crate) source: Source,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SkillError {
    #[error("no skill is named `{name}`; did you mean `{near}`?")]
    Misspelt { name: String, near: String },
    #[error("no skill is named `{name}`; there are {known}")]
    Unknown { name: String, known: String },
    /// The file is there and could not be used.
    #[error("skill `{name}` is not usable: {found}")]
    Broken { name: String, found: Diagnostic },
    #[error("skill `{name}` of this project is not trusted; `decode trust` shows what it would do")]
    NotTrusted { name: String },
}

/// All skills of one invocation, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Skills {
    /// The project's first, the bundled last: what is nearest counts most where there is no room for all.
    pub(crate) entries: Vec<Entry>,
    /// Sound skills of the project that may not act.
    pub(crate) untrusted: Vec<Entry>,
    pub(crate) diagnostics: Vec<Diagnostic>,
}

impl Skills {
    /// Reads all there is. Nothing here fails as a whole: what is wrong is in `diagnostics`.
    pub(crate) fn load(places: &Places) -> Self {
        let mut skills = Self::default();
        for (name, text) in BUNDLED {
            let Parsed { skill, diagnostics } = skill_file::parse(&Path::new(name).join(FILE), text);
            skills.diagnostics.extend(diagnostics);
            let bundled =
                skill.map(|skill| Entry { skill: Skill { directory: None, ..skill }, source: Source::Bundled });
            skills.entries.extend(bundled);
        }
        for directory in places.user_skills() {
            for found in skills.read_directory(&directory, places, Layer::User) {
                skills.put(found);
            }
        }
        for directory in places.project_skills() {
            for found in skills.read_directory(&directory, places, Layer::Project) {
                skills.put(found);
            }
        }
        skills.entries.sort_by_key(|entry| match entry.source {
            Source::Project(_) => 0,
            Source::User(_) => 1,
            Source::Bundled => 2,
        });
        skills
    }

    pub(crate) fn get(&self, name: &str) -> Result<&Entry, SkillError> {
        if let Some(entry) = self.entries.iter().find(|entry| entry.skill.name == name) {
            return Ok(entry);
        }
        let name = name.to_owned();
        if self.untrusted.iter().any(|entry| entry.skill.name == name) {
            return Err(SkillError::NotTrusted { name });
        }
        let broken = self.diagnostics.iter().find(|found| {
            found.severity == Severity::Error
                && found.path.parent().and_then(Path::file_name).is_some_and(|directory| directory == name.as_str())
        });
        if let Some(found) = broken {
            return Err(SkillError::Broken { name, found: found.clone() });
        }
        let known = || self.entries.iter().map(|entry| entry.skill.name.as_str());
        Err(match text::closest(&name, known()) {
            Some(near) => SkillError::Misspelt { near: near.to_owned(), name },
            None => SkillError::Unknown { known: known().collect::<Vec<_>>().join(", "), name },
        })
    }

    /// What a person means with `/name arguments`: the text that the agent then follows.
    pub(crate) fn invocation(&self, name: &str, arguments: &str) -> Result<String, SkillError> {
        Ok(self.get(name)?.skill.invocation(arguments))
    }

    /// The skills that a model may load.
    pub(crate) fn for_models(&self) -> Vec<Skill> {
        let skills = self.entries.iter().map(|entry| &entry.skill);
        skills.filter(|skill| skill.callers == Callers::Anyone).cloned().collect()
    }

    /// Adds a skill, in the place of one of the same name.
    fn put(&mut self, found: Found) {
        let Found { entry, path, standing } = found;
        if standing == Standing::NotTrusted {
            self.untrusted.push(entry);
            return;
        }
        match self.entries.iter_mut().find(|other| other.skill.name == entry.skill.name) {
            // A copy of ours that lies where another agent looks is still ours.
            Some(other) if other.source == Source::Bundled && other.skill.is_copied_by(&entry.skill) => {}
            Some(other) => {
                if other.source != Source::Bundled && !other.skill.is_copied_by(&entry.skill) {
                    let message = format!("`{}` replaces the one of `{}`", entry.skill.name, other.source);
                    self.diagnostics.push(Diagnostic::new(&path, 1, Severity::Note, message));
                }
                *other = entry;
            }
            None => self.entries.push(entry),
        }
    }

    /// The usable skills of a directory in the order of their paths; a missing directory has none.
    fn read_directory(&mut self, directory: &Path, places: &Places, layer: Layer) -> Vec<Found> {
        let mut all: Vec<Found> = Vec::new();
        for folder in folders(directory) {
            let path = folder.join(FILE);
            if !path.is_file() {
                let found = Diagnostic::new(&folder, 1, Severity::Note, format!("skipped: it holds no {FILE}"));
                self.diagnostics.push(found);
                continue;
            }
            if layer == Layer::Project && leads_out(&path, places.project.as_deref()) {
                let message = "skipped: it is a link to a file outside of the project";
                self.diagnostics.push(Diagnostic::new(&path, 1, Severity::Warning, message));
                continue;
            }
            let text = match files::read(&path, FILE_LIMIT) {
                Ok(text) => text,
                Err(error) => {
                    self.diagnostics.push(Diagnostic::new(&path, 1, Severity::Error, error.to_string()));
                    continue;
                }
            };
            let Parsed { skill, diagnostics } = skill_file::parse(&path, &text);
            self.diagnostics.extend(diagnostics);
            let Some(skill) = skill else { continue };
            if let Some(first) = all.iter().find(|first| first.entry.skill.name == skill.name) {
                let message = format!("`{}` is already in `{}`, which is used", skill.name, first.path.display());
                let found = Diagnostic::new(&path, 1, Severity::Warning, message);
                self.diagnostics.push(found.with_fix("rename or remove one of the two"));
                continue;
            }
            let inside = places.project.as_deref().filter(|_| layer == Layer::Project);
            let (siblings, standing) = match (siblings(&folder, inside), layer) {
                (Some(siblings), Layer::User) => (siblings, Standing::Trusted),
                (Some(siblings), Layer::Project) => {
                    let standing = standing(places, &path, &text, &folder, &siblings);
                    (siblings, standing)
                }
                (None, _) => {
                    let message = format!("more than {SIBLINGS} files lie beside it");
                    self.diagnostics.push(Diagnostic::new(&path, 1, Severity::Error, message));
                    continue;
                }
            };
            let source = match layer {
                Layer::User => Source::User(path.clone()),
                Layer::Project => Source::Project(path.clone()),
            };
            all.push(Found { entry: Entry { skill: Skill { siblings, ..skill }, source }, path, standing });
        }
        all
    }
}

impl Skill {
    /// Whether another has the same words and no more files.
    fn is_copied_by(&self, other: &Self) -> bool {
        self.body == other.body && self.description == other.description && self.siblings == other.siblings
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layer {
    User,
    Project,
}

/// A usable skill, its file, and whether it may act.
struct Found {
    entry: Entry,
    path: PathBuf,
    standing: Standing,
}

/// The folders in a directory of skills, sorted. Links are followed; hidden ones are other agents' own business.
fn folders(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let visible = entries.filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
    let mut folders: Vec<PathBuf> = visible.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

fn leads_out(path: &Path, project: Option<&Path>) -> bool {
    let project = project.and_then(|project| project.canonicalize().ok());
    match (project, path.canonicalize()) {
        (Some(project), Ok(real)) => !real.starts_with(project),
        (None, _) | (_, Err(_)) => true,
    }
}

/// The files beside a skill, relative to its folder, sorted. `None` if they are too many. Of a project's skill none that
/// lies outside of it.
fn siblings(folder: &Path, project: Option<&Path>) -> Option<Vec<String>> {
    let walk = walkdir::WalkDir::new(folder).follow_links(true).sort_by_file_name().into_iter();
    let mut siblings = Vec::new();
    // The history of a skill that was cloned is no part of it.
    for entry in walk.filter_entry(|entry| entry.file_name() != ".git").flatten() {
        let relative = entry.path().strip_prefix(folder).unwrap_or(entry.path());
        let outside = || project.is_some() && leads_out(entry.path(), project);
        if !entry.file_type().is_file() || relative == Path::new(FILE) || outside() {
            continue;
        }
        if siblings.len() == SIBLINGS {
            return None;
        }
        siblings.push(text::without_controls(&relative.to_string_lossy()));
    }
    Some(siblings)
}

/// A skill is trusted with all that it may have read or run, or not at all.
fn standing(places: &Places, path: &Path, text: &str, folder: &Path, siblings: &[String]) -> Standing {
    let trusted = |path: &Path, content: &[u8]| places.standing(path, content) == Standing::Trusted;
    let whole = || {
        let project = places.project.as_deref().unwrap_or(Path::new(""));
        let known = places.trust.files().paths().filter(|known| project.join(known).starts_with(folder));
        known.count() == siblings.len() + 1
    };
    let sound = |name: &String| {
        let path = folder.join(name);
        files::read_bytes(&path, SIBLING_LIMIT).is_ok_and(|content| trusted(&path, &content))
    };
    if trusted(path, text.as_bytes()) && whole() && siblings.iter().all(sound) {
        Standing::Trusted
    } else {
        Standing::NotTrusted
    }
}

/// What is wrong with one file, for its author; an empty list means that it loads as written.
pub(crate) fn check(path: &Path, text: &str) -> Vec<Diagnostic> {
    skill_file::parse(path, text).diagnostics
}

#[cfg(test)]
mod tests {
    use super::super::places::Trust;
    use super::super::project::tests::trust_in_all;
    use super::*;
    use crate::model::skill::index;

    struct Fixture {
        root: tempfile::TempDir,
    }

    impl Fixture {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            std::fs::create_dir(root.path().join("project")).unwrap();
            Self { root }
        }

        fn at(&self, path: &str) -> PathBuf {
            self.root.path().join(path)
        }

        fn file(&self, path: &str, text: &str) -> PathBuf {
            let path = self.at(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            path
        }

        fn load(&self, trust: Trust) -> Skills {
            let (user, home, project) = (self.at("user"), self.at("home"), self.at("project"));
            Skills::load(&Places { user: Some(user), home: Some(home), project: Some(project), trust })
        }
    }

    fn skill(name: &str, body: &str) -> String {
        format!("---\nname: {name}\ndescription: does {name}\n---\n{body}\n")
    }

    fn names(skills: &Skills) -> Vec<&str> {
        skills.entries.iter().map(|entry| entry.skill.name.as_str()).collect()
    }

    #[test]
    fn the_bundled_skills_are_sound_and_have_a_place_in_the_index() {
        let skills = Skills::load(&Places::default());
        assert_eq!(skills.diagnostics, []);
        assert_eq!(names(&skills), ["subagent-tmux", "review-swarm"]);
        let index = index(&skills.for_models());
        assert!(index.contains("- subagent-tmux: ") && index.contains("- review-swarm: "), "{index}");
        assert!(index.len() < 1_000, "{}", index.len());
    }

    #[test]
    fn every_skill_of_the_repository_is_bundled() {
        let mut listed = BUNDLED.map(|(name, _)| name.to_owned());
        listed.sort();
        let folders = folders(&Path::new(env!("CARGO_MANIFEST_DIR")).join("skills"));
        let there: Vec<String> =
            folders.iter().filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())).collect();
        assert_eq!(there, listed);
    }

    #[test]
    fn a_skill_of_the_project_is_known_and_not_loaded_before_it_is_trusted() {
        let fixture = Fixture::new();
        fixture.file("project/.claude/skills/deploy/SKILL.md", &skill("deploy", "Deploy."));
        fixture.file("project/.agents/skills/review-swarm/SKILL.md", &skill("review-swarm", "Praise all."));
        let skills = fixture.load(Trust::default());
        assert_eq!(names(&skills), ["subagent-tmux", "review-swarm"]);
        assert_eq!(skills.get("review-swarm").unwrap().source, Source::Bundled);
        assert_eq!(skills.untrusted.len(), 2);
        assert_eq!(skills.invocation("deploy", ""), Err(SkillError::NotTrusted { name: "deploy".into() }));
        assert!(!index(&skills.for_models()).contains("deploy"));

        let skills = fixture.load(trust_in_all(&fixture.at("project")));
        assert_eq!(names(&skills), ["review-swarm", "deploy", "subagent-tmux"]);
        assert_eq!(skills.invocation("deploy", "to prod").unwrap(), "Deploy.\n\nARGUMENTS: to prod");
        assert_eq!(skills.invocation("review-swarm", "").unwrap(), "Praise all.");
        assert_eq!(skills.untrusted, []);
    }

    #[test]
    fn a_skill_is_trusted_with_all_of_its_files_or_not_at_all() {
        let fixture = Fixture::new();
        fixture.file("project/.decode/skills/a/SKILL.md", &skill("a", "Run scripts/a.sh."));
        fixture.file("project/.decode/skills/a/scripts/a.sh", "echo a\n");
        let trust = trust_in_all(&fixture.at("project"));
        let siblings = &fixture.load(trust.clone()).get("a").unwrap().skill.siblings.clone();
        assert_eq!(siblings, &["scripts/a.sh"]);
        fixture.file("project/.decode/skills/a/scripts/a.sh", "rm -rf ~\n");
        assert!(matches!(fixture.load(trust.clone()).get("a"), Err(SkillError::NotTrusted { .. })));
        fixture.file("project/.decode/skills/a/scripts/a.sh", "echo a\n");
        assert!(fixture.load(trust.clone()).get("a").is_ok());
        fixture.file("project/.decode/skills/a/new.sh", "echo new\n");
        assert!(matches!(fixture.load(trust.clone()).get("a"), Err(SkillError::NotTrusted { .. })));
        std::fs::remove_file(fixture.at("project/.decode/skills/a/new.sh")).unwrap();
        std::fs::remove_file(fixture.at("project/.decode/skills/a/scripts/a.sh")).unwrap();
        assert!(matches!(fixture.load(trust).get("a"), Err(SkillError::NotTrusted { .. })));
    }

    #[test]
    fn of_two_with_one_name_in_a_directory_the_first_is_used_and_both_are_named() {
        let fixture = Fixture::new();
        let first = fixture.file("user/skills/one/SKILL.md", &skill("dup", "one"));
        let second = fixture.file("user/skills/two/SKILL.md", &skill("dup", "two"));
        for _ in 0..20 {
            let skills = fixture.load(Trust::default());
            assert_eq!(skills.get("dup").unwrap().skill.body, "one");
            let told: Vec<String> = skills.diagnostics.iter().map(ToString::to_string).collect();
            let both =
                |told: &&String| told.contains(first.to_str().unwrap()) && told.contains(second.to_str().unwrap());
            assert_eq!(told.iter().filter(both).count(), 1, "{told:?}");
        }
    }

    #[test]
    fn what_is_ours_wins_over_what_other_agents_have_and_the_user_is_told() {
        let fixture = Fixture::new();
        fixture.file("home/.claude/skills/x/SKILL.md", &skill("x", "claude"));
        fixture.file("home/.agents/skills/x/SKILL.md", &skill("x", "agents"));
        fixture.file("user/skills/x/SKILL.md", &skill("x", "ours"));
        let skills = fixture.load(Trust::default());
        assert_eq!(skills.get("x").unwrap().skill.body, "ours");
        assert_eq!(skills.diagnostics.len(), 2);
        assert!(skills.diagnostics.iter().all(|found| found.severity == Severity::Note));
    }

    #[test]
    fn a_copy_of_a_bundled_skill_for_another_agent_is_still_the_bundled_one() {
        let fixture = Fixture::new();
        fixture.file("home/.claude/skills/subagent-tmux/SKILL.md", BUNDLED[0].1);
        let skills = fixture.load(Trust::default());
        assert_eq!(
            (skills.get("subagent-tmux").unwrap().source.clone(), skills.diagnostics),
            (Source::Bundled, vec![])
        );
    }

    #[test]
    fn one_broken_file_stops_no_other_and_is_named() {
        let fixture = Fixture::new();
        let broken = fixture.file("user/skills/broken/SKILL.md", "---\nname: [broken\n---\nx\n");
        fixture.file("user/skills/good/SKILL.md", &skill("good", "x"));
        fixture.file("user/skills/empty/notes.txt", "x");
        fixture.file("user/skills/README.md", "# Skills");
        let skills = fixture.load(Trust::default());
        assert_eq!(names(&skills), ["good", "subagent-tmux", "review-swarm"]);
        let told: Vec<(&Path, Severity)> =
            skills.diagnostics.iter().map(|found| (found.path.as_path(), found.severity)).collect();
        let empty = fixture.at("user/skills/empty");
        assert_eq!(told, [(broken.as_path(), Severity::Error), (empty.as_path(), Severity::Note)]);
        assert!(matches!(skills.get("broken"), Err(SkillError::Broken { .. })));
    }

    #[test]
    fn a_skill_is_called_by_its_name_and_not_by_its_directory() {
        let fixture = Fixture::new();
        fixture.file("user/skills/find-it/SKILL.md", &skill("history", "x"));
        let skills = fixture.load(Trust::default());
        assert!(skills.get("history").is_ok() && skills.get("find-it").is_err());
        assert_eq!(skills.diagnostics.len(), 1);
    }

    #[test]
    fn a_project_cannot_link_to_a_skill_outside_of_it() {
        let fixture = Fixture::new();
        fixture.file("secret/SKILL.md", &skill("secret", "x"));
        std::fs::create_dir_all(fixture.at("project/.decode/skills")).unwrap();
        std::os::unix::fs::symlink(fixture.at("secret"), fixture.at("project/.decode/skills/secret")).unwrap();
        let skills = fixture.load(trust_in_all(&fixture.at("project")));
        assert!(skills.get("secret").is_err() && skills.untrusted.is_empty());
        assert_eq!(skills.diagnostics.len(), 1);
    }

    #[test]
    fn a_misspelt_name_gets_a_proposal() {
        let skills = Skills::load(&Places::default());
        let told = |name| skills.get(name).unwrap_err().to_string();
        assert_eq!(told("review-swram"), "no skill is named `review-swram`; did you mean `review-swarm`?");
        assert_eq!(told("xyzzy"), "no skill is named `xyzzy`; there are subagent-tmux, review-swarm");
    }
}
