//! An attempt's files from the outside: what a supervisor or a viewer may believe of them.
//!
//! A status or report is believed only with the nonce of its brief. Deliberately absent: writing any of them.

use super::AttemptDir;
use crate::files;
use crate::front_matter;
use crate::model::brief::Claim;
use crate::model::report::Report;
use crate::model::status::Status;

/// A report's body is folded to 16 kB, but kept whole up to this.
const REPORT_LIMIT: u64 = 32 * 1024 * 1024;
const SMALL_LIMIT: u64 = 256 * 1024;

/// What was found where a file was looked for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Found<T> {
    It(T),
    Nothing,
    /// It is there and cannot be believed; says why.
    Unsound(String),
}

impl<T> Found<T> {
    pub(crate) fn it(self) -> Option<T> {
        match self {
            Self::It(it) => Some(it),
            Self::Nothing | Self::Unsound(_) => None,
        }
    }
}

pub(crate) fn claim(dir: &AttemptDir) -> Found<Claim> {
    read(&dir.claim(), SMALL_LIMIT, |claim: &Claim| match claim.v {
        0..=Claim::VERSION => Ok(()),
        newer => Err(format!("version {newer} is newer than this decode")),
    })
    .map(|(claim, _)| claim)
}

pub(crate) fn status(dir: &AttemptDir, nonce: &str) -> Found<Status> {
    read(&dir.status(), SMALL_LIMIT, |status: &Status| proven(&status.nonce, nonce)).map(|(status, _)| status)
}

pub(crate) fn report(dir: &AttemptDir, nonce: &str) -> Found<Report> {
    read(&dir.report(), REPORT_LIMIT, |report: &Report| proven(&report.nonce, nonce))
        .map(|(report, body)| Report { body, ..report })
}

/// The last lines of the log, at most `bytes` of them.
pub(crate) fn log_tail(dir: &AttemptDir, bytes: u64) -> Option<String> {
    files::tail(&dir.log(), bytes)
}

fn proven(found: &str, nonce: &str) -> Result<(), String> {
    if found == nonce { Ok(()) } else { Err("it does not bear the nonce of this attempt".to_owned()) }
}

impl<T> Found<T> {
    fn map<U>(self, change: impl FnOnce(T) -> U) -> Found<U> {
        match self {
            Self::It(it) => Found::It(change(it)),
            Self::Nothing => Found::Nothing,
            Self::Unsound(why) => Found::Unsound(why),
        }
    }
}

fn read<T: serde::de::DeserializeOwned>(
    path: &std::path::Path,
    limit: u64,
    check: impl FnOnce(&T) -> Result<(), String>,
) -> Found<(T, String)> {
    let text = match files::read(path, limit) {
        Ok(text) => text,
        Err(error) if error.is_missing() => return Found::Nothing,
        Err(error) => return Found::Unsound(error.to_string()),
    };
    match front_matter::read::<T>(&text) {
        Ok((header, body)) => match check(&header) {
            Ok(()) => Found::It((header, body.to_owned())),
            Err(why) => Found::Unsound(why),
        },
        Err(error) => Found::Unsound(error.to_string()),
    }
}
