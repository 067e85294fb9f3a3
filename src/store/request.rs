//! Requests as files: signed and renamed into an inbox by who asks, read and checked by who is asked.
//!
//! Deliberately absent: what a request does, and the life of an inbox (`inbox.rs` for a child's).

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::key::Key;
use crate::files::{self, FileError};
use crate::front_matter::{self, FrontMatterError};
use crate::model::request::Request;

/// A request larger than this is refused unread.
const LIMIT: u64 = 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    /// The inbox is gone: whoever was to read it takes no more.
    #[error("already finished: it takes no more messages")]
    Closed,
    #[error("the message has {bytes} bytes; at most {LIMIT} are allowed")]
    TooLarge { bytes: usize },
    #[error("failed to send into `{inbox}`")]
    Write { inbox: std::path::PathBuf, source: std::io::Error },
}

/// Why a file in an inbox is not obeyed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("it cannot be read")]
    Unreadable(#[from] FileError),
    #[error("it is not a file of ours")]
    NotAFile,
    #[error("its header is not sound")]
    Garbled(#[from] FrontMatterError),
    #[error("it has version {v}; this decode knows {known}", known = Request::VERSION)]
    Newer { v: u32 },
    #[error("it is for `{to}`")]
    Foreign { to: String },
    #[error("it is not signed by this user's decode")]
    Unsigned,
}

/// A request and its signature, as the header of a file.
#[derive(Serialize, Deserialize)]
struct Signed {
    #[serde(flatten)]
    request: Request,
    #[serde(default)]
    sig: String,
}

/// Signs a request and renames it into an inbox. The name sorts by time.
pub(crate) fn send(inbox: &Path, request: &Request, key: &Key) -> Result<(), SendError> {
    let header = Signed { request: request.clone(), sig: key.sign(request) };
    let text = front_matter::write(&header, &request.text);
    if text.len() as u64 > LIMIT {
        return Err(SendError::TooLarge { bytes: text.len() });
    }
    let wrong = |source| SendError::Write { inbox: inbox.to_owned(), source };
    // The temporary file lies beside the inbox, so that the rename fails when the inbox was closed in between.
    let beside = inbox.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(beside).map_err(wrong)?;
    std::io::Write::write_all(&mut file, text.as_bytes()).map_err(wrong)?;
    let random = uuid::Uuid::new_v4().simple().to_string();
    let name = format!("{:013}-{}.md", request.at.as_millis().max(0), &random[..12]);
    match file.persist(inbox.join(name)) {
        Ok(_) => Ok(()),
        Err(error) if error.error.kind() == std::io::ErrorKind::NotFound => Err(SendError::Closed),
        Err(error) => Err(wrong(error.error)),
    }
}

/// Reads a file of an inbox. It must be signed, and for one of `names`.
pub(crate) fn read(path: &Path, names: &[String], key: &Key) -> Result<Request, Refusal> {
    let is_file = std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file());
    if !is_file {
        return Err(Refusal::NotAFile);
    }
    let content = files::read(path, LIMIT)?;
    let (header, body) = front_matter::read::<Signed>(&content)?;
    let request = Request { text: body.to_owned(), ..header.request };
    if request.v > Request::VERSION {
        return Err(Refusal::Newer { v: request.v });
    }
    if !key.verify(&request, &header.sig) {
        return Err(Refusal::Unsigned);
    }
    if !names.contains(&request.to) {
        return Err(Refusal::Foreign { to: request.to });
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::request::Asked;
    use crate::model::time::Timestamp;

    fn request(text: &str) -> Request {
        Request {
            v: 1,
            id: "1".into(),
            to: "kabcde/3".into(),
            by: "send pts/4".into(),
            at: Timestamp::from_millis(1_796_074_899_007),
            ask: Asked::Steer,
            text: text.into(),
        }
    }

    fn only_file(directory: &Path) -> std::path::PathBuf {
        std::fs::read_dir(directory).unwrap().next().unwrap().unwrap().path()
    }

    #[test]
    fn a_message_arrives_byte_for_byte() {
        let directory = tempfile::tempdir().unwrap();
        let inbox = directory.path().join("inbox");
        std::fs::create_dir(&inbox).unwrap();
        let key = Key::from_bytes([1; 32]);
        let asked = request("`id` $(touch x) $HOME\r\n---\n日本語 '\"\\");
        send(&inbox, &asked, &key).unwrap();
        let names = ["kabcde/3".to_owned()];
        assert_eq!(read(&only_file(&inbox), &names, &key).unwrap(), asked);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "no temporary file stays");
    }

    #[test]
    fn a_message_into_a_closed_inbox_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let result = send(&directory.path().join("inbox"), &request("late"), &Key::from_bytes([1; 32]));
        assert!(matches!(result, Err(SendError::Closed)));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn unsigned_foreign_and_garbled_files_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let inbox = directory.path().join("inbox");
        std::fs::create_dir(&inbox).unwrap();
        let key = Key::from_bytes([1; 32]);
        send(&inbox, &request("hi"), &key).unwrap();
        let path = only_file(&inbox);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(matches!(read(&path, &["kabcde/4".into()], &key), Err(Refusal::Foreign { .. })));
        let names = ["kabcde/3".to_owned()];
        let mut wrong = vec![
            (text.replace("hi", "ho"), "a changed body"),
            (text.replace("steer", "wrap_up"), "a changed verb"),
            (text.lines().filter(|line| !line.starts_with("sig")).collect::<Vec<_>>().join("\n"), "no signature"),
            ("please stop".to_owned(), "no header"),
            (String::new(), "nothing"),
        ];
        for (content, what) in wrong.drain(..) {
            std::fs::write(&path, content).unwrap();
            assert!(read(&path, &names, &key).is_err(), "{what}");
        }
        assert!(matches!(read(directory.path(), &names, &key), Err(Refusal::NotAFile)));
    }
}
