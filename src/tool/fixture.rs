//! A workspace for the tests of the tools.

use std::path::PathBuf;

use super::{Answer, Input, Scope, Tool};

pub(super) struct Fixture {
    pub(super) scope: Scope,
    /// Makes the running call end.
    pub(super) cut: tokio::sync::watch::Sender<bool>,
    _directory: tempfile::TempDir,
}

impl Fixture {
    pub(super) fn new() -> Self {
        Self::in_directory(tempfile::tempdir().unwrap())
    }

    /// In memory, where there is such a place: a disk takes half a minute for as many files, and is slow long after.
    pub(super) fn for_many_files() -> Self {
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Self::in_directory(directory.unwrap())
    }

    fn in_directory(directory: tempfile::TempDir) -> Self {
        let base = directory.path().canonicalize().unwrap();
        let root = base.join("workspace");
        std::fs::create_dir(&root).unwrap();
        let (cut, receiver) = tokio::sync::watch::channel(false);
        let path = std::env::var("PATH").unwrap();
        let scope = Scope {
            root,
            spill: base.join("spill"),
            readable: Vec::new(),
            environment: vec![("PATH".to_owned(), path)],
            cut: receiver,
            seen: std::sync::Arc::default(),
            deny: Vec::new(),
            allow: Vec::new(),
            sandbox: None,
            left: crate::model::budget::Budget::NONE,
            teller: super::Teller::new(|_| {}),
        };
        Self { scope, cut, _directory: directory }
    }

    pub(super) fn path(&self, relative: &str) -> PathBuf {
        self.scope.root.join(relative)
    }

    pub(super) fn write(&self, relative: &str, content: impl AsRef<[u8]>) {
        let path = self.path(relative);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub(super) fn bytes(&self, relative: &str) -> Vec<u8> {
        std::fs::read(self.path(relative)).unwrap()
    }

    pub(super) fn run(&self, tool: &dyn Tool, input: Input) -> Answer {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(tool.run(input, &self.scope))
    }
}

pub(super) fn input(arguments: serde_json::Value) -> Input {
    match arguments {
        serde_json::Value::Object(input) => input,
        other => panic!("{other} is no object"),
    }
}
