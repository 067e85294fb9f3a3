//! Paths of a project, for whoever completes them: those that git does not ignore, and none outside.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use crate::tui::Paths;

/// Names that are looked at in one directory.
const MOST: usize = 2_000;

/// A function that lists the paths which begin so.
pub(super) fn beneath(project: PathBuf) -> Paths {
    Arc::new(move |start| list(&project, start))
}

fn list(project: &Path, start: &str) -> Vec<String> {
    let (directory, name) = start.rsplit_once('/').map_or(("", start), |(directory, name)| (directory, name));
    let is_beneath = Path::new(directory).components().all(|part| matches!(part, Component::Normal(_)));
    if !is_beneath || start.starts_with('/') {
        return Vec::new();
    }
    let (Ok(root), Ok(place)) = (project.canonicalize(), project.join(directory).canonicalize()) else {
        return Vec::new();
    };
    // A link may lead out.
    if !place.starts_with(&root) {
        return Vec::new();
    }
    let walk = ignore::WalkBuilder::new(project.join(directory))
        .max_depth(Some(1))
        .hidden(!name.starts_with('.'))
        .require_git(false)
        .build();
    let mut found: Vec<String> = walk
        .flatten()
        .filter(|entry| entry.depth() == 1)
        .take(MOST)
        .filter_map(|entry| {
            let own = entry.file_name().to_str()?;
            let is_directory = entry.path().is_dir();
            let shown = own.starts_with(name) && own != ".git" && !own.chars().any(char::is_control);
            let before = if directory.is_empty() { String::new() } else { format!("{directory}/") };
            shown.then(|| format!("{before}{own}{}", if is_directory { "/" } else { "" }))
        })
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn only_paths_of_the_project_that_git_sees_are_listed() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "").unwrap();
        let project = tempfile::tempdir().unwrap();
        let path = |name: &str| project.path().join(name);
        fs::create_dir_all(path("src/inner")).unwrap();
        fs::create_dir(path("target")).unwrap();
        for name in ["src/main.rs", "src/map.rs", "README.md", ".env"] {
            fs::write(path(name), "").unwrap();
        }
        fs::write(path(".gitignore"), "target\n").unwrap();
        std::os::unix::fs::symlink(outside.path(), path("out")).unwrap();
        let paths = beneath(project.path().to_owned());
        assert_eq!(paths(""), ["README.md", "out/", "src/"]);
        assert_eq!(paths("src/m"), ["src/main.rs", "src/map.rs"]);
        assert_eq!(paths("."), [".env", ".gitignore"]);
        for none in ["/", "../", "src/../", "out/", "nothing/"] {
            assert_eq!(paths(none), Vec::<String>::new(), "{none}");
        }
    }
}
