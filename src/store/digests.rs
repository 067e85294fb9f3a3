//! Contents of files by hash: one line a file, as `sha256sum` writes and checks them.
//!
//! Deliberately absent: what the hashes stand for. Trust in a project and the skills we installed are both kept so.

use std::collections::BTreeMap;
use std::fmt::Write;

use sha2::{Digest, Sha256};

/// The hash of a content, in hexadecimal.
pub(crate) fn of(content: &[u8]) -> String {
    Sha256::digest(content).iter().fold(String::with_capacity(64), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
        text
    })
}

/// Hashes by the path of their file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Digests(BTreeMap<String, String>);

impl Digests {
    pub(crate) fn insert(&mut self, path: &str, digest: String) {
        self.0.insert(path.to_owned(), digest);
    }

    pub(crate) fn remove(&mut self, path: &str) {
        self.0.remove(path);
    }

    pub(crate) fn get(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Whether this content is the one that is known for the path.
    pub(crate) fn holds(&self, path: &str, content: &[u8]) -> bool {
        // Nothing is hashed for a path that nobody knows.
        self.get(path).is_some_and(|known| known == of(content))
    }

    /// Reads lines as `Display` writes them. `None` if one is anything else: half a list is no list.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        let parsed = lines.map(|line| {
            let (digest, path) = line.split_once("  ")?;
            let sound = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()) && !path.is_empty();
            sound.then(|| (path.to_owned(), digest.to_owned()))
        });
        parsed.collect::<Option<BTreeMap<_, _>>>().map(Self)
    }
}

impl std::fmt::Display for Digests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|(path, digest)| writeln!(f, "{digest}  {path}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_is_known_by_its_bytes_and_a_list_is_read_back() {
        let mut digests = Digests::default();
        digests.insert("a b/c.md", of(b"abc"));
        digests.insert("z", of(b""));
        assert!(
            digests.to_string().starts_with("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  a b")
        );
        assert_eq!(Digests::parse(&digests.to_string()), Some(digests.clone()));
        assert!(digests.holds("a b/c.md", b"abc"));
        assert!(!digests.holds("a b/c.md", b"abd") && !digests.holds("z", b"abc") && !digests.holds("new", b""));
    }

    #[test]
    fn a_list_with_one_strange_line_is_no_list() {
        for text in ["x  a", "garbage", &format!("{}  ", of(b"")), &format!("{}  a\nmore", of(b""))] {
            assert_eq!(Digests::parse(text), None, "{text}");
        }
        assert_eq!(Digests::parse("\n"), Some(Digests::default()));
    }
}
