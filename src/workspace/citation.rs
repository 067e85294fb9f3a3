//! Whether the places that a report names exist in the child's workspace.
//!
//! Deliberately absent: whether they say what the report claims; that is for the reader.

use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::machine::citation::Citation;

/// Lines past this many bytes are not counted: a place there is taken as unsound rather than read for.
const READ_LIMIT: u64 = 16 * 1024 * 1024;

/// The citations that do not hold, as they were written: no such file beneath `root`, or no such line.
pub(crate) fn unsound(root: &Path, citations: &[Citation]) -> Vec<String> {
    let Ok(root) = root.canonicalize() else { return citations.iter().map(ToString::to_string).collect() };
    let mut lines: HashMap<PathBuf, Option<u32>> = HashMap::new();
    citations
        .iter()
        .filter(|citation| {
            // An absolute path replaces the root here and is judged like any other.
            let path = root.join(&citation.path);
            let known = *lines.entry(path).or_insert_with_key(|path| count_lines(&root, path));
            !known.is_some_and(|known| citation.line >= 1 && citation.last <= known)
        })
        .map(ToString::to_string)
        .collect()
}

/// The lines of a regular file beneath `root`, links resolved; `None` where there is none.
fn count_lines(root: &Path, path: &Path) -> Option<u32> {
    let path = path.canonicalize().ok().filter(|path| path.starts_with(root))?;
    // A pipe or a device would make the reading wait.
    if !path.metadata().ok()?.is_file() {
        return None;
    }
    let mut reader = std::fs::File::open(&path).ok()?.take(READ_LIMIT);
    let (mut buffer, mut feeds, mut last) = (vec![0; 64 * 1024], 0_u32, b'\n');
    loop {
        match reader.read(&mut buffer).ok()? {
            0 => break,
            read => {
                feeds += buffer[..read].split(|byte| *byte == b'\n').count() as u32 - 1;
                last = buffer[read - 1];
            }
        }
    }
    Some(feeds + u32::from(last != b'\n'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::citation::extract;

    #[test]
    fn a_place_holds_only_if_file_and_line_exist_beneath_the_root() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        std::fs::create_dir_all(root.join("src")).unwrap();
        std::fs::write(root.join("src/a.rs"), "one\ntwo").unwrap();
        std::fs::write(root.join("empty.rs"), "").unwrap();
        std::fs::write(directory.path().join("out.rs"), "one\n").unwrap();
        std::os::unix::fs::symlink(directory.path().join("out.rs"), root.join("link.rs")).unwrap();
        nix::unistd::mkfifo(&root.join("pipe.rs"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let text = format!(
            "src/a.rs:1 src/a.rs:2 {}/src/a.rs:2 src/a.rs:3 src/a.rs:0 src/a.rs:1-9 src/b.rs:1 ../out.rs:1 link.rs:1 \
             empty.rs:1 pipe.rs:1 /etc/passwd:1",
            root.display()
        );
        assert_eq!(
            unsound(&root, &extract(&text)),
            [
                "src/a.rs:3",
                "src/a.rs:0",
                "src/a.rs:1-9",
                "src/b.rs:1",
                "../out.rs:1",
                "link.rs:1",
                "empty.rs:1",
                "pipe.rs:1",
                "/etc/passwd:1"
            ]
        );
    }

    #[test]
    fn without_a_workspace_nothing_holds() {
        assert_eq!(unsound(Path::new("/nonexistent"), &extract("a.rs:1")), ["a.rs:1"]);
    }
}
