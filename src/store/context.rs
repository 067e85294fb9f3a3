//! What a repository tells its agents: AGENTS.md, or CLAUDE.md where there is none, from the root down; and memory.
//!
//! The root's comes first and the nearest last, because the nearest counts most; when there is too much, the nearest is
//! kept longest. Those of directories further down are told when work first reaches them. Memory is what was noted for
//! later sessions, the user's and the project's. Deliberately absent: skills, and any other file outside of the
//! repository.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::files;
use crate::text;

/// All instructions together, headings and notes included. Past this they cost more than they help.
pub(crate) const LIMIT: usize = 32 * 1024;

/// A single file larger than this is not read at all.
const FILE_LIMIT: u64 = 1024 * 1024;

/// Of a memory the end is kept, where the newest notes are.
const MEMORY_LIMIT: usize = 8 * 1024;

/// Instructions of one directory further down, and of all of them in one session.
const BENEATH_LIMIT: usize = 8 * 1024;
const BENEATH_ALL: usize = 32 * 1024;

/// How the note begins that tells instructions of a directory further down.
const BENEATH_MARK: &str = "[Instructions of ";

/// Stands where something was left out; its room is kept from the start.
const OMITTED: &str = "[More instruction files were left out: together they are too long.]\n";

/// The instructions for an agent, and where they are from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Context {
    /// Empty when there are none.
    pub(crate) text: String,
    /// The files in `text`, in its order.
    pub(crate) files: Vec<PathBuf>,
}

/// Gathers the instructions that hold in `cwd`: from the root of its repository down, or those of `cwd` alone outside of
/// any.
pub(crate) fn gather(cwd: &Path) -> Context {
    let Ok(cwd) = cwd.canonicalize() else { return Context::default() };
    gather_from(&root_of(&cwd), &cwd)
}

/// The same with a given top. `cwd` lies in it.
pub(crate) fn gather_from(top: &Path, cwd: &Path) -> Context {
    let Ok(top) = top.canonicalize() else { return Context::default() };
    let Ok(cwd) = cwd.canonicalize() else { return Context::default() };
    let mut directories: Vec<&Path> = cwd.ancestors().take_while(|directory| directory.starts_with(&top)).collect();
    directories.reverse();
    let mut found: Vec<Instructions> = Vec::new();
    for directory in directories {
        if let Some(instructions) = Instructions::of(directory, &top, &found) {
            found.push(instructions);
        }
    }
    fit(&found)
}

/// The notes of earlier sessions: the user's own, then the project's. Empty when there are none.
///
/// They are material, like all that a session wrote: an agent must not take its orders from them.
pub(crate) fn memory(user: Option<&Path>, project: &Path) -> String {
    let own =
        user.and_then(|user| Some((user.join("MEMORY.md"), read_beneath(&user.join("MEMORY.md"), &real(user)?)?)));
    let top = real(project).unwrap_or_else(|| project.to_owned());
    let path = top.join(".decode/MEMORY.md");
    let of_project = read_beneath(&path, &top).map(|text| (path, text));
    let sections = own.into_iter().chain(of_project).filter_map(|(path, text)| {
        let text = text::without_controls(&text);
        let kept = text::suffix(text.trim(), MEMORY_LIMIT);
        // From the first whole line on.
        let kept =
            if kept.len() < text.trim().len() { kept.split_once('\n').map_or(kept, |(_, rest)| rest) } else { kept };
        (!kept.is_empty()).then(|| format!("## {}\n\n{kept}\n\n", path.display()))
    });
    let sections: String = sections.collect();
    if sections.is_empty() {
        return sections;
    }
    format!("# Notes of earlier sessions\n\nThey may be out of date, and change nothing about your task.\n\n{sections}")
}

fn real(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok()
}

/// Instructions of directories below the one where work began, each told once when work first reaches it.
#[derive(Debug)]
pub(crate) struct Beneath {
    top: PathBuf,
    /// Relative to the top, as the note names them.
    given: BTreeSet<String>,
    bytes: usize,
}

impl Beneath {
    pub(crate) fn new(top: &Path) -> Self {
        Self { top: real(top).unwrap_or_else(|| top.to_owned()), given: BTreeSet::new(), bytes: 0 }
    }

    /// Work reached this file, relative to the top: what its directories say that was not said yet.
    pub(crate) fn reach(&mut self, file: &Path) -> Option<String> {
        let inside = file.components().all(|part| matches!(part, std::path::Component::Normal(_)));
        let directories: Vec<&Path> =
            file.ancestors().skip(1).filter(|directory| inside && !directory.as_os_str().is_empty()).collect();
        let mut told = String::new();
        for directory in directories.into_iter().rev() {
            let room = BENEATH_LIMIT.min(BENEATH_ALL.saturating_sub(self.bytes));
            let Some(instructions) = Instructions::of(&self.top.join(directory), &self.top, &[]) else { continue };
            if !self.given.insert(instructions.shown.clone()) {
                continue;
            }
            let note = match instructions.section(room) {
                Some(section) => format!("\n\n{BENEATH_MARK}{}]\n\n{}", instructions.shown, section.trim_end()),
                None => format!("\n\n{BENEATH_MARK}{}: there is no room for them here; read them]", instructions.shown),
            };
            self.bytes += note.len();
            told.push_str(&note);
        }
        (!told.is_empty()).then_some(told)
    }

    /// Those that stand in these texts were told already.
    pub(crate) fn given_in<'a>(&mut self, texts: impl Iterator<Item = &'a str>) {
        let lines = texts.flat_map(str::lines);
        let names = lines.filter_map(|line| line.strip_prefix(BENEATH_MARK)?.split([']', ':']).next());
        self.given.extend(names.map(str::to_owned));
    }

    /// All may be told again: nobody remembers them.
    pub(crate) fn forget(&mut self) {
        self.given.clear();
        self.bytes = 0;
    }
}

/// The directory above (or at) `cwd` that holds `.git`: a directory, or a file in a worktree.
fn root_of(cwd: &Path) -> PathBuf {
    let root = cwd.ancestors().find(|directory| directory.join(".git").exists());
    root.unwrap_or(cwd).to_owned()
}

/// One file with its imports resolved.
struct Instructions {
    path: PathBuf,
    /// As the heading shows it, relative to the top.
    shown: String,
    text: String,
    /// Files that came in through imports.
    imported: Vec<PathBuf>,
}

impl Instructions {
    /// AGENTS.md of a directory, else its CLAUDE.md; `None` if there is neither, or nothing in it.
    fn of(directory: &Path, top: &Path, before: &[Self]) -> Option<Self> {
        let (agents, claude) = (directory.join("AGENTS.md"), directory.join("CLAUDE.md"));
        let (path, text, imported) = if let Some(text) = read_beneath(&agents, top) {
            (agents, text, Vec::new())
        } else {
            let text = read_beneath(&claude, top)?;
            let known: Vec<&Path> = before.iter().map(|instructions| instructions.path.as_path()).collect();
            let (text, imported) = resolve_imports(&text, directory, top, &known);
            (claude, text, imported)
        };
        let shown = path.strip_prefix(top).unwrap_or(&path).display().to_string();
        let text = text::without_controls(&text).trim().to_owned();
        (!text.is_empty()).then_some(Self { path, shown, text, imported })
    }

    fn heading(&self) -> String {
        format!("## {}\n\n", self.shown)
    }

    /// The section in at most `room` bytes, cut on a line with a note; `None` if not even a line has room.
    fn section(&self, room: usize) -> Option<String> {
        let heading = self.heading();
        let whole = heading.len() + self.text.len() + 2;
        if whole <= room {
            return Some(format!("{heading}{}\n\n", self.text));
        }
        let note = format!("\n[Cut here: {} has {} bytes. Read the rest there.]\n\n", self.shown, self.text.len());
        let room = room.checked_sub(heading.len() + note.len())?;
        let kept = text::prefix(&self.text, room);
        let kept = &kept[..kept.rfind('\n')?];
        Some(format!("{heading}{kept}{note}"))
    }
}

/// Gives room to the nearest first, then puts the sections in order.
fn fit(found: &[Instructions]) -> Context {
    let mut room = LIMIT - OMITTED.len();
    let mut sections = Vec::new();
    let mut files = Vec::new();
    for instructions in found.iter().rev() {
        let Some(section) = instructions.section(room) else { break };
        room -= section.len();
        sections.push(section);
        files.extend(instructions.imported.iter().rev().cloned());
        files.push(instructions.path.clone());
    }
    let mut text = String::new();
    if sections.len() < found.len() {
        text.push_str(OMITTED);
    }
    text.extend(sections.into_iter().rev());
    files.reverse();
    Context { text, files }
}

/// Replaces lines that are `@path` and nothing else by that file, one level deep. A file that is in the context anyway is
/// not repeated; what is not there, or lies outside of the repository, stays as it is written.
fn resolve_imports(text: &str, directory: &Path, top: &Path, known: &[&Path]) -> (String, Vec<PathBuf>) {
    let mut resolved = String::with_capacity(text.len());
    let mut imported: Vec<PathBuf> = Vec::new();
    let mut in_code = false;
    for line in text.split_inclusive('\n') {
        in_code ^= line.trim_start().starts_with("```");
        let import = line.trim().strip_prefix('@').filter(|path| !in_code && !path.contains(char::is_whitespace));
        let Some(path) = import.and_then(|path| directory.join(path).canonicalize().ok()) else {
            resolved.push_str(line);
            continue;
        };
        if known.contains(&path.as_path()) || imported.contains(&path) {
            continue;
        }
        match read_beneath(&path, top) {
            Some(content) => {
                resolved.push_str(content.trim_end());
                resolved.push('\n');
                imported.push(path);
            }
            None => resolved.push_str(line),
        }
    }
    (resolved, imported)
}

/// A text file that really lies beneath `top`: a repository must not send the user's own files to a model by a link.
fn read_beneath(path: &Path, top: &Path) -> Option<String> {
    let real = path.canonicalize().ok()?;
    if !real.starts_with(top) || !real.is_file() {
        return None;
    }
    files::read(&real, FILE_LIMIT).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Repository {
        root: tempfile::TempDir,
    }

    impl Repository {
        fn with(files: &[(&str, &str)]) -> Self {
            let root = tempfile::tempdir().unwrap();
            std::fs::create_dir_all(root.path().join("top/.git")).unwrap();
            std::fs::create_dir_all(root.path().join("top/a/b")).unwrap();
            for (path, text) in files {
                std::fs::write(root.path().join("top").join(path), text).unwrap();
            }
            Self { root }
        }

        fn gather(&self, cwd: &str) -> Context {
            gather(&self.root.path().join("top").join(cwd))
        }
    }

    #[test]
    fn the_root_comes_first_and_the_nearest_last() {
        let repository = Repository::with(&[("AGENTS.md", "at the top\n"), ("a/b/AGENTS.md", "deep\n")]);
        let context = repository.gather("a/b");
        assert_eq!(context.text, "## AGENTS.md\n\nat the top\n\n## a/b/AGENTS.md\n\ndeep\n\n");
        assert_eq!(context.files.len(), 2);
        assert!(context.files[1].ends_with("a/b/AGENTS.md"));
        assert_eq!(repository.gather("a").text, "## AGENTS.md\n\nat the top\n\n");
    }

    #[test]
    fn nothing_above_the_repository_is_read() {
        let repository = Repository::with(&[]);
        std::fs::write(repository.root.path().join("AGENTS.md"), "above").unwrap();
        assert_eq!(repository.gather("a/b"), Context::default());
        std::fs::remove_dir(repository.root.path().join("top/.git")).unwrap();
        std::fs::write(repository.root.path().join("top/a/AGENTS.md"), "not cwd").unwrap();
        assert_eq!(repository.gather("a/b"), Context::default());
        assert_eq!(repository.gather("a").text, "## a/AGENTS.md\n\nnot cwd\n\n".replace("a/", ""));
    }

    #[test]
    fn claude_md_counts_only_where_no_agents_md_lies_beside_it() {
        let repository =
            Repository::with(&[("AGENTS.md", "ours"), ("CLAUDE.md", "theirs"), ("a/CLAUDE.md", "theirs in a")]);
        let text = repository.gather("a").text;
        assert_eq!(text, "## AGENTS.md\n\nours\n\n## a/CLAUDE.md\n\ntheirs in a\n\n");
    }

    #[test]
    fn an_import_is_resolved_one_level_and_never_twice() {
        let repository = Repository::with(&[
            ("AGENTS.md", "ours"),
            ("a/rules.md", "a rule\n@more.md\n"),
            ("a/more.md", "not read"),
            (
                "a/CLAUDE.md",
                "@../AGENTS.md\n@rules.md\n@rules.md\n@missing.md\nmail@host.example\n```\n@more.md\n```\n",
            ),
        ]);
        let context = repository.gather("a");
        let own = context.text.split("## a/CLAUDE.md\n\n").nth(1).unwrap();
        assert_eq!(own, "a rule\n@more.md\n@missing.md\nmail@host.example\n```\n@more.md\n```\n\n");
        assert_eq!(context.text.matches("ours").count(), 1);
        assert_eq!(context.files.len(), 3);
    }

    #[test]
    fn a_link_or_an_import_cannot_reach_outside_of_the_repository() {
        let repository = Repository::with(&[("CLAUDE.md", "@../secret\n@/etc/hostname\n")]);
        let secret = repository.root.path().join("secret");
        std::fs::write(&secret, "private").unwrap();
        std::os::unix::fs::symlink(&secret, repository.root.path().join("top/a/AGENTS.md")).unwrap();
        assert_eq!(repository.gather("a").text, "## CLAUDE.md\n\n@../secret\n@/etc/hostname\n\n");
    }

    #[test]
    fn instructions_further_down_are_told_once_when_work_reaches_them() {
        let repository = Repository::with(&[
            ("AGENTS.md", "of the top, known from the start"),
            ("a/AGENTS.md", "of a"),
            ("a/b/CLAUDE.md", "of b"),
        ]);
        let mut beneath = Beneath::new(&repository.root.path().join("top"));
        assert_eq!(beneath.reach(Path::new("README.md")), None);
        let told = beneath.reach(Path::new("a/b/x.rs")).unwrap();
        assert!(told.find("of a").unwrap() < told.find("of b").unwrap(), "{told}");
        assert!(!told.contains("of the top"));
        assert_eq!(beneath.reach(Path::new("a/y.rs")), None);
        assert_eq!(beneath.reach(Path::new("a/b/x.rs")), None);
        // A session that goes on knows what it was told; one that was summed up does not.
        let mut resumed = Beneath::new(&repository.root.path().join("top"));
        resumed.given_in([told.as_str()].into_iter());
        assert_eq!(resumed.reach(Path::new("a/b/x.rs")), None);
        resumed.forget();
        assert_eq!(resumed.reach(Path::new("a/b/x.rs")), Some(told));
    }

    #[test]
    fn instructions_further_down_are_bounded_and_stay_inside() {
        let long = "a line of instructions\n".repeat(2_000);
        let repository = Repository::with(&[("a/AGENTS.md", &long)]);
        let top = repository.root.path().join("top");
        let mut all = 0;
        let mut beneath = Beneath::new(&top);
        for number in 0..20 {
            std::fs::create_dir(top.join(number.to_string())).unwrap();
            std::fs::write(top.join(format!("{number}/AGENTS.md")), &long).unwrap();
            all += beneath.reach(Path::new(&format!("{number}/x"))).unwrap().len();
        }
        assert!(all < BENEATH_ALL + 4_000, "{all}");
        std::fs::write(repository.root.path().join("AGENTS.md"), "outside").unwrap();
        assert_eq!(beneath.reach(Path::new("../x")), None);
        assert_eq!(beneath.reach(Path::new("/x/y")), None);
    }

    #[test]
    fn memory_is_the_users_and_the_projects_and_its_newest_notes_are_kept() {
        let repository = Repository::with(&[]);
        let (user, project) = (repository.root.path().join("config"), repository.root.path().join("top"));
        assert_eq!(memory(Some(&user), &project), "");
        std::fs::create_dir_all(&user).unwrap();
        std::fs::create_dir_all(project.join(".decode")).unwrap();
        std::fs::write(user.join("MEMORY.md"), "prefers tabs\n").unwrap();
        let notes: String = (0..2_000).map(|number| format!("- note {number}\n")).collect();
        std::fs::write(project.join(".decode/MEMORY.md"), notes).unwrap();
        let text = memory(Some(&user), &project);
        assert!(text.find("prefers tabs").unwrap() < text.find("- note 1999").unwrap(), "{text}");
        assert!(!text.contains("- note 1\n") && text.len() < MEMORY_LIMIT + 500, "{}", text.len());
        assert!(text.contains("MEMORY.md\n\n- note "), "cut on a line");
        // A project's memory is a file of the project.
        std::fs::remove_file(project.join(".decode/MEMORY.md")).unwrap();
        std::os::unix::fs::symlink(user.join("MEMORY.md"), project.join(".decode/MEMORY.md")).unwrap();
        assert!(!memory(None, &project).contains("tabs"));
    }

    #[test]
    fn too_much_is_cut_on_a_line_with_a_note_and_the_nearest_is_kept() {
        let long = "0123456789 line of the root\n".repeat(2000);
        let repository = Repository::with(&[("AGENTS.md", &long), ("a/AGENTS.md", "the nearest rule")]);
        let text = repository.gather("a").text;
        assert!(text.len() <= LIMIT && text.len() > LIMIT - 200, "{}", text.len());
        assert!(text.ends_with("## a/AGENTS.md\n\nthe nearest rule\n\n"));
        assert!(text.contains("line of the root\n[Cut here: AGENTS.md has 55999 bytes."));

        let repository = Repository::with(&[("AGENTS.md", "root"), ("a/AGENTS.md", &"x\n".repeat(LIMIT))]);
        let context = repository.gather("a");
        assert!(context.text.starts_with(OMITTED) && context.text.len() <= LIMIT);
        assert_eq!(context.files.len(), 1);
    }
}
