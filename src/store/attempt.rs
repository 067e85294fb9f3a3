//! An attempt's directory from the child's side: claim it, read the brief, keep a log, leave a report.
//!
//! The supervisor's one file here is the brief; its writing stands beside the reading so that both stay in step.
//! Deliberately absent: `status.md` (`status.rs`), the inbox (`inbox.rs`), the transcript (`session.rs`).

use std::io::Write;
use std::path::PathBuf;

use super::AttemptDir;
use crate::files::{self, Durability, FileError};
use crate::front_matter::{self, FrontMatterError};
use crate::model::brief::{Brief, Claim};
use crate::model::report::Report;

/// A brief larger than this is no brief of ours.
const BRIEF_LIMIT: u64 = 64 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub(crate) enum AttemptError {
    #[error("failed to reach a file of the attempt")]
    File(#[from] FileError),
    #[error("`{path}` is not sound")]
    Garbled { path: PathBuf, source: FrontMatterError },
    #[error("`{path}` has version {v}; this decode knows {known}")]
    Newer { path: PathBuf, v: u32, known: u32 },
    #[error("the body of `{path}` is not as long as its header says")]
    Sizes { path: PathBuf },
}

/// Proof that this process holds the attempt.
#[derive(Debug)]
pub(crate) struct Claimed {
    dir: AttemptDir,
}

/// What became of the first act of a child.
#[derive(Debug)]
pub(crate) enum Claiming {
    Claimed(Claimed),
    /// Somebody runs it, or it was given up: touch nothing and exit 0.
    AlreadyTaken,
}

/// Claims an attempt: the first act of a child. Exactly one process ever gets it.
pub(crate) fn claim(dir: AttemptDir, claim: &Claim) -> Result<Claiming, AttemptError> {
    let created = files::create(&dir.claim(), front_matter::write(claim, "").as_bytes())?;
    Ok(if created { Claiming::Claimed(Claimed { dir }) } else { Claiming::AlreadyTaken })
}

impl Claimed {
    pub(crate) fn dir(&self) -> &AttemptDir {
        &self.dir
    }

    /// All this attempt was told.
    pub(crate) fn brief(&self) -> Result<Brief, AttemptError> {
        read_brief(&self.dir)
    }

    /// The last file of an attempt; on the disk when this returns.
    pub(crate) fn report(&self, report: &Report) -> Result<(), AttemptError> {
        let text = front_matter::write(&bounded(report), &report.body);
        Ok(files::write(&self.dir.report(), text.as_bytes(), Durability::Synced)?)
    }

    pub(crate) fn log(&self) -> Result<Log, AttemptError> {
        let path = self.dir.log();
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
        file.map(Log).map_err(|source| FileError::Write { path, source }.into())
    }
}

/// The header as its reader takes it: of thousands of changed files the first are named and the rest counted, because a
/// report that is refused for its header is a report lost.
fn bounded(report: &Report) -> Report {
    let mut header = Report { body: String::new(), ..report.clone() };
    while matches!(front_matter::split(&front_matter::write(&header, "")), Err(FrontMatterError::TooLarge { .. })) {
        let kept = header.files_changed.len() / 2;
        header.files_left_out += (header.files_changed.len() - kept) as u64;
        header.files_changed.truncate(kept);
        header.citations.truncate(header.citations.len() / 2);
        if kept == 0
            && let Some(error) = &mut header.error
        {
            error.detail = crate::text::prefix(&error.detail, error.detail.len() / 2).to_owned();
        }
    }
    header
}

/// Writes a brief; the prompt and the system prompt travel in the body, byte for byte.
pub(crate) fn write_brief(dir: &AttemptDir, brief: &Brief) -> Result<(), AttemptError> {
    let (prompt, system) = (&brief.spec.prompt, &brief.spec.system);
    let undelivered_bytes = brief.undelivered.iter().map(String::len).collect();
    let header = Brief { prompt_bytes: prompt.len(), system_bytes: system.len(), undelivered_bytes, ..brief.clone() };
    let text = front_matter::write(&header, &format!("{prompt}{system}{}", brief.undelivered.concat()));
    // A header that its reader would refuse is refused here, where somebody can still do something about it.
    front_matter::split(&text).map_err(|source| AttemptError::Garbled { path: dir.brief(), source })?;
    Ok(files::write(&dir.brief(), text.as_bytes(), Durability::Renamed)?)
}

pub(crate) fn read_brief(dir: &AttemptDir) -> Result<Brief, AttemptError> {
    let path = dir.brief();
    let text = files::read(&path, BRIEF_LIMIT)?;
    let (mut brief, body): (Brief, &str) =
        front_matter::read(&text).map_err(|source| AttemptError::Garbled { path: path.clone(), source })?;
    if brief.v > Brief::VERSION {
        return Err(AttemptError::Newer { path, v: brief.v, known: Brief::VERSION });
    }
    let sizes: Vec<usize> =
        [brief.prompt_bytes, brief.system_bytes].into_iter().chain(brief.undelivered_bytes.iter().copied()).collect();
    match cut(body, &sizes).as_deref() {
        Some([prompt, system, undelivered @ ..]) => {
            (*prompt).clone_into(&mut brief.spec.prompt);
            (*system).clone_into(&mut brief.spec.system);
            brief.undelivered = undelivered.iter().map(|text| (*text).to_owned()).collect();
            Ok(brief)
        }
        Some(_) | None => Err(AttemptError::Sizes { path }),
    }
}

/// A body cut into parts of these sizes, if that is all of it.
fn cut<'a>(body: &'a str, sizes: &[usize]) -> Option<Vec<&'a str>> {
    let mut rest = body;
    let mut parts = Vec::new();
    for size in sizes {
        let (part, after) = rest.split_at_checked(*size)?;
        parts.push(part);
        rest = after;
    }
    rest.is_empty().then_some(parts)
}

/// `log.txt`: what the window showed.
#[derive(Debug)]
pub(crate) struct Log(std::fs::File);

impl Log {
    /// One entry, in one write. A log that cannot be written must not end the work.
    pub(crate) fn line(&self, text: &str) {
        let _ = (&self.0).write_all(format!("{text}\n").as_bytes());
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::model::brief::Start;
    use crate::model::budget::Budget;
    use crate::model::child::{ChildSpec, Evidence, Harness, Lease};
    use crate::model::id::{ChildId, RunId};
    use crate::model::persona::{Mode, Persona};
    use crate::model::time::Timestamp;
    use crate::model::usage::Usage;

    pub(crate) fn a_claim() -> Claim {
        Claim {
            v: Claim::VERSION,
            revoked: false,
            at: Timestamp::from_millis(0),
            pid: 1,
            start_time: 2,
            boot_id: "b".into(),
            host: "h".into(),
            process_group: 1,
            pane: None,
        }
    }

    pub(crate) fn a_brief(workspace: &str) -> Brief {
        Brief {
            v: Brief::VERSION,
            run: RunId::try_from("kabcde".to_owned()).unwrap(),
            child: ChildId::new(3, "auth"),
            attempt: 1,
            nonce: "n0nce".into(),
            session: "5e55".into(),
            start: Start::Fresh,
            grant: Budget { requests: Some(100), ..Budget::NONE },
            spent: Usage::ZERO,
            lease: Lease {
                recipe: "shared".into(),
                path: workspace.into(),
                project: workspace.into(),
                branch: None,
                base: None,
            },
            depth: 1,
            environment: None,
            undelivered: Vec::new(),
            spec: ChildSpec {
                label: "auth".into(),
                prompt: "look at the auth code".into(),
                persona: Persona {
                    name: "explore".into(),
                    description: String::new(),
                    tools: Vec::new(),
                    mode: Mode::Bypass,
                    allow: Vec::new(),
                    deny: Vec::new(),
                    model: None,
                    subagent: true,
                },
                system: "You explore.".into(),
                model: "script/x".into(),
                harness: Harness::Decode,
                workspace: "shared".into(),
                cwd: workspace.into(),
                budget: Budget::CHILD,
                retries: 1,
                evidence: Evidence::NotRequired,
                needs: Vec::new(),
                ask: crate::model::child::Ask::IfSomebodyIsThere,
                resume: None,
                session: None,
                schema: None,
            },
            prompt_bytes: 0,
            system_bytes: 0,
            undelivered_bytes: Vec::new(),
        }
    }

    #[test]
    fn an_attempt_is_claimed_once() {
        let directory = tempfile::tempdir().unwrap();
        let dir = AttemptDir::at(directory.path());
        assert!(matches!(claim(dir.clone(), &a_claim()).unwrap(), Claiming::Claimed(_)));
        let before = std::fs::read(dir.claim()).unwrap();
        let second = Claim { pid: 2, ..a_claim() };
        assert!(matches!(claim(dir.clone(), &second).unwrap(), Claiming::AlreadyTaken));
        assert_eq!(std::fs::read(dir.claim()).unwrap(), before, "the second touched nothing");
    }

    #[test]
    fn a_brief_is_read_back_byte_for_byte() {
        let directory = tempfile::tempdir().unwrap();
        let dir = AttemptDir::at(directory.path());
        let starts = [
            Start::Fresh,
            Start::Nudged("empty: say more\n".into()),
            Start::Resumed(1),
            Start::Continued(2, "a: b\n---\n".into()),
        ];
        for start in starts {
            let mut brief = a_brief("/w");
            brief.start = start;
            // Larger than a header may be, and still no reason to lose the attempt.
            brief.undelivered = vec!["{a: [b".into(), "long ".repeat(40_000)];
            brief.spec.prompt = "---\r\n$HOME `id` $(id) !! ' \" \\\n日本語\0\n---\n".into();
            brief.spec.persona.name = "guide (advisory)".into();
            write_brief(&dir, &brief).unwrap();
            let read = read_brief(&dir).unwrap();
            brief.prompt_bytes = brief.spec.prompt.len();
            brief.system_bytes = brief.spec.system.len();
            brief.undelivered_bytes = brief.undelivered.iter().map(String::len).collect();
            assert_eq!(read, brief);
        }
    }

    #[test]
    fn a_report_that_names_thousands_of_files_can_be_read() {
        let directory = tempfile::tempdir().unwrap();
        let Claiming::Claimed(claimed) = claim(AttemptDir::at(directory.path()), &a_claim()).unwrap() else { panic!() };
        let all: Vec<String> =
            (0..5_000).map(|n| format!("generated/\u{1b}[1m/some/long/directory/{n:05}.txt")).collect();
        let failure =
            crate::model::child::Failure::new(crate::model::child::FailureKind::Provider, "x".repeat(200_000));
        let report = Report {
            v: Report::VERSION,
            outcome: crate::model::report::Outcome::Done,
            exit: 0,
            nonce: "n0nce".into(),
            session: "5e55".into(),
            usage: Usage::ZERO,
            tool_calls: 1,
            evidence: 1,
            duration_s: 1.0,
            files_changed: all.clone(),
            files_left_out: 0,
            citations: Vec::new(),
            error: Some(failure),
            limited_until: None,
            co_driven: 0,
            body: "---\nthe whole report\n".into(),
        };
        claimed.report(&report).unwrap();
        let read = crate::store::observed::report(claimed.dir(), "n0nce").it().expect("a report that is believed");
        assert_eq!(read.body, report.body);
        assert_eq!(read.files_changed.len() as u64 + read.files_left_out, 5_000);
        let few = Report { files_changed: all[..9].to_vec(), error: None, ..report };
        claimed.report(&few).unwrap();
        assert_eq!(crate::store::observed::report(claimed.dir(), "n0nce").it(), Some(few));
    }

    #[test]
    fn a_brief_that_is_short_or_newer_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let dir = AttemptDir::at(directory.path());
        write_brief(&dir, &a_brief("/w")).unwrap();
        let text = std::fs::read_to_string(dir.brief()).unwrap();
        std::fs::write(dir.brief(), &text[..text.len() - 1]).unwrap();
        assert!(matches!(read_brief(&dir), Err(AttemptError::Sizes { .. })));
        std::fs::write(dir.brief(), text.replacen("v: 1", "v: 2", 1)).unwrap();
        assert!(matches!(read_brief(&dir), Err(AttemptError::Newer { v: 2, .. })));
        std::fs::remove_file(dir.brief()).unwrap();
        assert!(matches!(read_brief(&dir), Err(AttemptError::File(error)) if error.is_missing()));
    }
}
