//! `<state>/key`: signs what people and the supervisor ask, so that a file alone is no authority.
//!
//! What is signed is fixed here and does not depend on how a header happens to be written. Deliberately absent: where
//! requests lie (`request.rs`) and who may read the key (the sandbox).

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::files::{self, FileError};
use crate::model::request::Request;

/// A key has this many bytes.
const LENGTH: usize = 32;

#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyError {
    #[error("failed to read or make the key")]
    File(#[from] FileError),
    #[error("failed to look at the key `{path}`")]
    Look { path: PathBuf, source: std::io::Error },
    #[error("others can read the key `{path}`; remove it, a new one is made")]
    Exposed { path: PathBuf },
    #[error("the key `{path}` is damaged; remove it, a new one is made")]
    Damaged { path: PathBuf },
    #[error("the system gives no random bytes")]
    Random { source: std::io::Error },
}

/// The secret that signs requests. Its `Debug` tells nothing.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Key([u8; LENGTH]);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(…)")
    }
}

impl Key {
    #[cfg(test)]
    pub(crate) const fn from_bytes(bytes: [u8; LENGTH]) -> Self {
        Self(bytes)
    }

    /// Reads the key at `path`; the first to ask makes it.
    pub(crate) fn load_or_create(path: &Path) -> Result<Self, KeyError> {
        match Self::load(path) {
            Err(KeyError::Look { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
            other => return other,
        }
        let mut bytes = [0; LENGTH];
        std::fs::File::open("/dev/urandom")
            .and_then(|mut random| random.read_exact(&mut bytes))
            .map_err(|source| KeyError::Random { source })?;
        // Another process may have made one in between; the one that is there counts.
        files::create(path, format!("{}\n", hex(&bytes)).as_bytes())?;
        Self::load(path)
    }

    fn load(path: &Path) -> Result<Self, KeyError> {
        let path_owned = || path.to_owned();
        let metadata =
            std::fs::symlink_metadata(path).map_err(|source| KeyError::Look { path: path_owned(), source })?;
        if !metadata.is_file() || metadata.mode() & 0o077 != 0 || metadata.uid() != nix::unistd::getuid().as_raw() {
            return Err(KeyError::Exposed { path: path_owned() });
        }
        let text = files::read(path, 1024)?;
        let bytes = unhex(text.trim()).and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| KeyError::Damaged { path: path_owned() })
    }

    /// The signature of a request, in hexadecimal.
    pub(crate) fn sign(&self, request: &Request) -> String {
        hex(&self.mac(request).finalize().into_bytes())
    }

    /// Whether `signature` is of this request; takes the same time wherever it differs.
    pub(crate) fn verify(&self, request: &Request, signature: &str) -> bool {
        unhex(signature).is_some_and(|bytes| self.mac(request).verify_slice(&bytes).is_ok())
    }

    fn mac(&self, request: &Request) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        let ask = serde_json::to_string(&request.ask).expect("an enum without data is a JSON string");
        let version = request.v.to_string();
        let at = request.at.to_string();
        // Each field goes in with its length, so that no text can pose as the next field.
        for field in [&version, &request.id, &request.to, &request.by, &at, &ask, &request.text] {
            mac.update(&(field.len() as u64).to_be_bytes());
            mac.update(field.as_bytes());
        }
        mac
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
        text
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::model::request::Asked;
    use crate::model::time::Timestamp;

    fn request() -> Request {
        Request {
            v: 1,
            id: "a".into(),
            to: "kabcde/3".into(),
            by: "person".into(),
            at: Timestamp::from_millis(1),
            ask: Asked::Steer,
            text: "look at b.rs".into(),
        }
    }

    #[test]
    fn the_key_is_made_once_and_read_by_nobody_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let key = Key::load_or_create(&path).unwrap();
        assert_eq!(Key::load_or_create(&path).unwrap(), key);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_ne!(Key::load_or_create(&directory.path().join("other")).unwrap(), key);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(Key::load_or_create(&path), Err(KeyError::Exposed { .. })));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&path, "short").unwrap();
        assert!(matches!(Key::load_or_create(&path), Err(KeyError::Damaged { .. })));
    }

    #[test]
    fn a_signature_holds_for_exactly_one_request() {
        let key = Key::from_bytes([7; LENGTH]);
        let signature = key.sign(&request());
        assert!(key.verify(&request(), &signature));
        let others = [
            Request { to: "kabcde/4".into(), ..request() },
            Request { text: "look at c.rs".into(), ..request() },
            Request { ask: Asked::Stop, ..request() },
            Request { id: "ak".into(), to: "abcde/3".into(), ..request() },
        ];
        for other in others {
            assert!(!key.verify(&other, &signature), "{other:?}");
        }
        assert!(!Key::from_bytes([8; LENGTH]).verify(&request(), &signature));
        for wrong in ["", "zz", &signature[1..], "é"] {
            assert!(!key.verify(&request(), wrong), "{wrong}");
        }
        assert_eq!(format!("{key:?}"), "Key(…)");
    }
}
