//! `settings.yaml`: the user's, then the project's where it is trusted.
//!
//! Every value is typed here, once; an unknown key is an error with its line. What spends money, names a server or frees
//! an agent comes from the user alone. Deliberately absent: flags and the environment, which win over all of this.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::files::{self, FileError};
use crate::model::budget::Budget;
use crate::model::language_server::LanguageServer;
use crate::model::provider::ProviderKind;
use crate::model::rule::Rule;
use crate::text;

use super::places::{Places, Standing};

const FILE_LIMIT: u64 = 64 * 1024;

/// Keys that a project may not set, known to us or not: what they would do there is plain from their names.
const OF_THE_USER: [&str; 10] = [
    "budget",
    "child_budget",
    "keys",
    "lsp",
    "mode",
    "permission_mode",
    "prices",
    "providers",
    "sandbox",
    "web_search",
];

#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    #[error("failed to read settings")]
    Read { source: FileError },
    #[error("{path}:{line}: {message}")]
    Wrong { path: PathBuf, line: usize, message: String },
    #[error("{path}:{line}: a project may not set `{key}`; it belongs in ~/.config/decode/settings.yaml")]
    OfTheUser { path: PathBuf, line: usize, key: String },
}

/// What the files say. `None` and empty mean that they say nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Settings {
    /// `provider/name`, or a tier.
    pub(crate) model: Option<String>,
    pub(crate) models: Tiers,
    pub(crate) providers: BTreeMap<String, Provider>,
    pub(crate) budget: Option<Budget>,
    pub(crate) child_budget: Option<Budget>,
    pub(crate) width: Option<u32>,
    /// Files that git ignores and a workspace takes along, relative to the project.
    pub(crate) carry: Vec<String>,
    pub(crate) allow: Vec<Rule>,
    pub(crate) deny: Vec<Rule>,
    /// Where the tool `web_search` asks.
    pub(crate) web_search: Option<BaseUrl>,
    /// Language servers beside those that are known.
    pub(crate) lsp: Vec<LanguageServer>,
    /// How long the offline model waits before each answer, so that people can watch.
    pub(crate) offline_pace_ms: Option<u64>,
    /// Whether commands are confined; unsaid, they are.
    pub(crate) sandbox: Option<Sandbox>,
    /// The project's file, where it was left out because the project is not trusted.
    pub(crate) left_out: Option<PathBuf>,
}

/// Whether the commands of tools are confined where the kernel can.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Sandbox {
    #[default]
    On,
    /// As the user wants it; a project cannot.
    Off,
}

/// As it is written; YAML of old reads `off` as false.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum WrittenSandbox {
    Word(Sandbox),
    Truth(bool),
}

impl From<WrittenSandbox> for Sandbox {
    fn from(written: WrittenSandbox) -> Self {
        match written {
            WrittenSandbox::Word(word) => word,
            WrittenSandbox::Truth(true) => Self::On,
            WrittenSandbox::Truth(false) => Self::Off,
        }
    }
}

/// Models by what they cost.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Tiers {
    pub(crate) cheap: Option<String>,
    pub(crate) default: Option<String>,
    pub(crate) strong: Option<String>,
}

/// A provider that the user names, or changes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Provider {
    pub(crate) base_url: Option<BaseUrl>,
    pub(crate) kind: Option<ProviderKind>,
    /// The environment variable that holds the key.
    pub(crate) key_env: Option<VariableName>,
}

/// An `http` or `https` address.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct BaseUrl(String);

impl BaseUrl {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for BaseUrl {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        match host {
            Some(host) if !host.is_empty() && !text.contains(char::is_whitespace) => Ok(Self(text)),
            Some(_) | None => Err(format!("`{text}` is no address as in http://localhost:8080/v1")),
        }
    }
}

/// The name of an environment variable.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct VariableName(String);

impl VariableName {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for VariableName {
    type Error = &'static str;

    /// The text is not repeated in the error: people put the key itself here.
    fn try_from(text: String) -> Result<Self, &'static str> {
        let sound = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if sound { Ok(Self(text)) } else { Err("`key_env` takes the name of an environment variable, not the key") }
    }
}

/// One file as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct File {
    model: Option<String>,
    models: Tiers,
    providers: BTreeMap<String, Provider>,
    budget: Option<WrittenBudget>,
    child_budget: Option<WrittenBudget>,
    width: Option<Width>,
    workspace: Workspace,
    permissions: Permissions,
    web_search: WebSearch,
    lsp: Vec<LanguageServer>,
    offline: Offline,
    sandbox: Option<WrittenSandbox>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct WebSearch {
    endpoint: Option<BaseUrl>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Workspace {
    carry: Vec<CarriedPath>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Permissions {
    allow: Vec<Rule>,
    deny: Vec<Rule>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Offline {
    pace_ms: Option<u64>,
}

/// `usd=5,time=30m`, as `--budget` takes it.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
struct WrittenBudget(Budget);

impl TryFrom<String> for WrittenBudget {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map(Self)
    }
}

#[derive(Debug, Deserialize)]
#[serde(try_from = "u32")]
struct Width(u32);

impl TryFrom<u32> for Width {
    type Error = &'static str;

    fn try_from(width: u32) -> Result<Self, &'static str> {
        if width == 0 { Err("`width` is at least 1") } else { Ok(Self(width)) }
    }
}

/// A path inside of the project.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
struct CarriedPath(String);

impl TryFrom<String> for CarriedPath {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        use std::path::Component;
        let inside = Path::new(&text).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if inside && !text.is_empty() { Ok(Self(text)) } else { Err(format!("`{text}` does not lie in the project")) }
    }
}

impl Settings {
    /// Reads the user's file, then the project's on top of it. Files that are not there say nothing.
    pub(crate) fn load(places: &Places) -> Result<Self, SettingsError> {
        let mut settings = Self::default();
        if let Some(path) = places.user_settings()
            && let Some(text) = read(&path)?
        {
            settings.add(parse(&path, &text)?);
        }
        if let Some(path) = places.project_settings()
            && let Some(text) = read(&path)?
        {
            match places.standing(&path, text.as_bytes()) {
                Standing::NotTrusted => settings.left_out = Some(path),
                Standing::Trusted => {
                    refuse_keys_of_the_user(&path, &text)?;
                    settings.add(parse(&path, &text)?);
                }
            }
        }
        Ok(settings)
    }

    /// Puts a file on top: single values replace, lists grow.
    fn add(&mut self, file: File) {
        let Tiers { cheap, default, strong } = file.models;
        self.model = file.model.or(self.model.take());
        self.models.cheap = cheap.or(self.models.cheap.take());
        self.models.default = default.or(self.models.default.take());
        self.models.strong = strong.or(self.models.strong.take());
        self.providers.extend(file.providers);
        self.budget = file.budget.map(|budget| budget.0).or(self.budget);
        self.child_budget = file.child_budget.map(|budget| budget.0).or(self.child_budget);
        self.width = file.width.map(|width| width.0).or(self.width);
        self.carry.extend(file.workspace.carry.into_iter().map(|path| path.0));
        self.allow.extend(file.permissions.allow);
        self.deny.extend(file.permissions.deny);
        self.web_search = file.web_search.endpoint.or(self.web_search.take());
        self.lsp.extend(file.lsp);
        self.sandbox = file.sandbox.map(Sandbox::from).or(self.sandbox);
        self.offline_pace_ms = file.offline.pace_ms.or(self.offline_pace_ms);
    }
}

fn read(path: &Path) -> Result<Option<String>, SettingsError> {
    match files::read(path, FILE_LIMIT) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.is_missing() => Ok(None),
        Err(source) => Err(SettingsError::Read { source }),
    }
}

fn parse(path: &Path, text: &str) -> Result<File, SettingsError> {
    let text = text.trim_start_matches('\u{feff}');
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Ok(File::default());
    }
    serde_yaml::from_str(text).map_err(|error| SettingsError::Wrong {
        path: path.to_owned(),
        line: error.location().map_or(1, |location| location.line()),
        message: explain(&error.to_string()),
    })
}

/// The parser's message without its position, and with the nearest key where one was misspelt.
fn explain(message: &str) -> String {
    let message = message.split(" at line ").next().unwrap_or(message).trim();
    // serde says: unknown field `x`, expected one of `a`, `b`.
    let Some((before, after)) = message.split_once("unknown field `") else { return message.to_owned() };
    let mut quoted = after.split('`').step_by(2);
    let unknown = quoted.next().unwrap_or_default();
    let known: Vec<&str> = after.split('`').skip(2).step_by(2).collect();
    match text::closest(unknown, known.iter().copied()) {
        Some(near) => format!("{before}unknown key `{unknown}`; did you mean `{near}`?"),
        None => format!("{before}unknown key `{unknown}`; known are {}", known.join(", ")),
    }
}

fn refuse_keys_of_the_user(path: &Path, text: &str) -> Result<(), SettingsError> {
    // Keys are taken from the parsed file: text alone would miss `{budget: 50}` and `"budget" : 50`. A file that does not
    // parse has no keys; the error comes from reading it.
    let keys: BTreeMap<String, serde_yaml::Value> = serde_yaml::from_str(text).unwrap_or_default();
    let Some(key) = OF_THE_USER.iter().find(|key| keys.contains_key(**key)) else { return Ok(()) };
    let starts = |line: &str| line.trim_start_matches(['"', '\'']).starts_with(key);
    let line = text.lines().position(starts).map_or(1, |index| index + 1);
    Err(SettingsError::OfTheUser { path: path.to_owned(), line, key: (*key).to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::places::Trust;
    use crate::store::project::tests::trust_in_all;

    struct Fixture {
        root: tempfile::TempDir,
    }

    impl Fixture {
        fn new(user: &str, project: &str) -> Self {
            let root = tempfile::tempdir().unwrap();
            std::fs::create_dir_all(root.path().join("project/.decode")).unwrap();
            std::fs::write(root.path().join("settings.yaml"), user).unwrap();
            std::fs::write(root.path().join("project/.decode/settings.yaml"), project).unwrap();
            Self { root }
        }

        fn load(&self, standing: Standing) -> Result<Settings, SettingsError> {
            let root = self.root.path().to_owned();
            let project = root.join("project");
            let trust = match standing {
                Standing::Trusted => trust_in_all(&project),
                Standing::NotTrusted => Trust::default(),
            };
            Settings::load(&Places { project: Some(project), user: Some(root), home: None, trust })
        }
    }

    /// The error without the directory of the test.
    fn error(user: &str, project: &str) -> String {
        let error = Fixture::new(user, project).load(Standing::Trusted).unwrap_err().to_string();
        error[error.find("settings.yaml").unwrap()..].to_owned()
    }

    const ALL: &str = "\
# mine
model: anthropic/large
models: {cheap: anthropic/small, strong: openai/big}
providers:
  local: {base_url: 'http://localhost:8080/v1', kind: openai, key_env: LOCAL_KEY}
budget: usd=3,time=30m
child_budget: requests=20
width: 6
workspace: {carry: [.env, config/local.yaml]}
permissions: {allow: ['bash(cargo *)'], deny: ['read(secret/**)']}
web_search: {endpoint: 'http://localhost:8888/search'}
lsp: [{name: zls, command: [zls], extensions: [zig]}]
offline: {pace_ms: 0}
";

    #[test]
    fn every_key_is_read() {
        let settings = Fixture::new(ALL, "").load(Standing::NotTrusted).unwrap();
        assert_eq!(settings.model.as_deref(), Some("anthropic/large"));
        let local = &settings.providers["local"];
        assert_eq!(local.kind, Some(ProviderKind::OpenAi));
        assert_eq!(local.base_url.as_ref().map(BaseUrl::as_str), Some("http://localhost:8080/v1"));
        assert_eq!(local.key_env.as_ref().map(VariableName::as_str), Some("LOCAL_KEY"));
        assert_eq!(settings.budget, Some("usd=3,time=30m".parse().unwrap()));
        assert_eq!(settings.child_budget, Some("requests=20".parse().unwrap()));
        assert_eq!(settings.width, Some(6));
        assert_eq!(settings.carry, [".env", "config/local.yaml"]);
        assert_eq!(settings.allow, ["bash(cargo *)".parse().unwrap()]);
        assert_eq!(settings.deny, ["read(secret/**)".parse().unwrap()]);
        assert_eq!(settings.web_search.as_ref().map(BaseUrl::as_str), Some("http://localhost:8888/search"));
        assert_eq!(settings.lsp[0].command, ["zls"]);
        assert_eq!(settings.offline_pace_ms, Some(0));
    }

    #[test]
    fn no_file_and_an_empty_file_say_nothing() {
        assert_eq!(Settings::load(&Places::default()).unwrap(), Settings::default());
        let nowhere = Places { user: Some("/nonexistent".into()), ..Places::default() };
        assert_eq!(Settings::load(&nowhere).unwrap(), Settings::default());
        assert_eq!(Fixture::new("# nothing\n\n", "").load(Standing::Trusted).unwrap(), Settings::default());
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line_and_the_nearest_one() {
        assert_eq!(error("width: 2\nmodle: x\n", ""), "settings.yaml:2: unknown key `modle`; did you mean `model`?");
        let nested = error("permissions:\n  alow: []\n", "");
        assert_eq!(nested, "settings.yaml:2: permissions: unknown key `alow`; did you mean `allow`?");
        let far = error("offline: {frobnicate: 1}", "");
        assert_eq!(far, "settings.yaml:1: offline: unknown key `frobnicate`; known are pace_ms");
    }

    #[test]
    fn a_value_that_makes_no_sense_is_named_with_its_line() {
        for (line, want) in [
            ("budget: usd=lots", "`lots`"),
            ("width: 0", "at least 1"),
            ("width: many", "many"),
            ("permissions: {allow: ['bash(x']}", "parenthesis"),
            ("workspace: {carry: [../secret]}", "`../secret` does not lie"),
            ("workspace: {carry: [/etc/passwd]}", "does not lie"),
            ("providers: {x: {base_url: localhost}}", "`localhost` is no address"),
            ("providers: {x: {kind: mainframe}}", "mainframe"),
            ("web_search: {endpoint: searx}", "`searx` is no address"),
            ("lsp: [{name: x, command: [], extensions: [x]}]", "has no command"),
        ] {
            let told = error(&format!("# first\n{line}\n"), "");
            assert!(told.starts_with("settings.yaml:2: ") && told.contains(want), "{told}");
        }
    }

    #[test]
    fn a_key_written_where_its_name_belongs_is_not_repeated() {
        let told = error("providers:\n  x:\n    key_env: sk-ant-secret\n", "");
        assert!(told.contains("not the key") && !told.contains("secret"), "{told}");
    }

    #[test]
    fn a_project_sets_nothing_that_spends_or_frees() {
        for (text, key, line) in [
            ("width: 2\nbudget: usd=500\n", "budget", 2),
            ("{width: 2, child_budget: usd=500}", "child_budget", 1),
            ("\"providers\" : {x: {base_url: 'http://evil'}}", "providers", 1),
            ("\nsandbox: off", "sandbox", 2),
            ("mode: bypass", "mode", 1),
            ("web_search: {endpoint: 'http://evil.example/'}", "web_search", 1),
            ("lsp: [{name: x, command: [./evil], extensions: [rs]}]", "lsp", 1),
        ] {
            let told = error("", text);
            assert!(told.starts_with(&format!("settings.yaml:{line}: ")), "{told}");
            assert!(told.contains(&format!("a project may not set `{key}`")), "{told}");
        }
    }

    #[test]
    fn a_projects_file_counts_only_when_it_is_trusted() {
        let fixture = Fixture::new("model: a/b\nworkspace: {carry: [.env]}", "model: c/d\nworkspace: {carry: [x]}");
        let settings = fixture.load(Standing::Trusted).unwrap();
        assert_eq!((settings.model.as_deref(), settings.left_out), (Some("c/d"), None));
        assert_eq!(settings.carry, [".env", "x"]);
        let settings = fixture.load(Standing::NotTrusted).unwrap();
        assert_eq!(settings.model.as_deref(), Some("a/b"));
        assert!(settings.left_out.is_some());
        assert!(Fixture::new("", "{{{").load(Standing::NotTrusted).is_ok(), "a strange project stops nobody");
    }
}
